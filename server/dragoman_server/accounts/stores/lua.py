"""The Lua scripts of the account store on a server. Each of them is one atomic step there.

The sums are those of tables.py, in the same order, so that they agree to the last bit; numbers are sent as text,
because the server would cut a Lua number to an integer. Transitions of an account's health are not here: the gateway
computes them, and `CHANGE` writes one only if no other gateway was faster.

Keys are passed as keys, never built in a script, so that servers can check who may use which. Entries that are not
needed after a while expire by themselves; what a script decides depends only on the gateways' clock.
"""

from typing import NamedTuple

from dragoman_server.accounts.stores.tables import (
    CONVERSATION_S,
    LEASE_RETRY_S,
    LEASE_S,
    TOLERANCE_S,
)

# Seconds for which the server holds entries after they have expired. Clocks of gateways may differ by that much.
_MARGIN_S = 60

_SHARED = f"""
local function text(number) return string.format('%.17g', number) end
local function number(found) return tonumber(found or '0') end
local function keep(key, seconds)
  redis.call('PEXPIRE', key, text(math.min(math.ceil((seconds + {_MARGIN_S}) * 1000), 1e15)))
end
local function fits_at(filled, most, period, amount, now)
  local at = math.max(filled, now) + math.min(amount, most) * period / most - period
  if at <= now + {TOLERANCE_S!r} then return 0 end
  return at
end
local function count(key, most, period, amount, now)
  local filled = math.max(number(redis.call('GET', key)), now) + amount * period / most
  redis.call('SET', key, text(filled))
  keep(key, filled - now)
end
"""


class LuaScript(NamedTuple):
    """name: for errors. text: Lua."""

    name: str
    text: str


# keys: health, used, the conversations' accounts, their expiries; then for each candidate requests, tokens, leases.
# arguments: now, lease, conversation or '', how many conversations; the candidates as JSON.
# returns: the candidate's number or 0; when there is room; last uses; the unusable accounts and their health.
RESERVE = LuaScript(
    "reserve",
    _SHARED
    + f"""
local now, lease, conversation, most_conversations = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local candidates, accounts = cjson.decode(ARGV[5]), {{}}
if #candidates == 0 then return {{0, text(math.huge), {{}}, {{}}}} end
for i, each in ipairs(candidates) do
  accounts[i] = each.account
  each.requests_key, each.tokens_key, each.leases_key = KEYS[3 * i + 2], KEYS[3 * i + 3], KEYS[3 * i + 4]
end
local healths = redis.call('HMGET', KEYS[1], unpack(accounts))

local function opens_at(i, refused)
  local each, at = candidates[i], 0
  if healths[i] then
    local health = cjson.decode(healths[i])
    if health.disabled ~= cjson.null then at = math.huge end
    if health.cooldown_until > now then at = math.max(at, health.cooldown_until) end
    if at > 0 then
      table.insert(refused, accounts[i])
      table.insert(refused, healths[i])
    end
  end
  if each.requests then
    local filled = number(redis.call('GET', each.requests_key))
    at = math.max(at, fits_at(filled, each.requests.limit, each.requests.period_s, 1, now))
  end
  if each.tokens then
    local filled = number(redis.call('GET', each.tokens_key))
    at = math.max(at, fits_at(filled, each.tokens.limit, each.tokens.period_s, 0, now))
  end
  if each.max_concurrent_requests then
    redis.call('ZREMRANGEBYSCORE', each.leases_key, '-inf', ARGV[1])
    local running = redis.call('ZCARD', each.leases_key)
    if running >= each.max_concurrent_requests then at = math.max(at, now + {LEASE_RETRY_S!r}) end
  end
  return at
end

local function note(i)
  local each = candidates[i]
  if each.requests then count(each.requests_key, each.requests.limit, each.requests.period_s, 1, now) end
  if each.max_concurrent_requests then
    redis.call('ZADD', each.leases_key, text(now + {LEASE_S!r}), lease)
    keep(each.leases_key, {LEASE_S!r})
  end
  redis.call('HSET', KEYS[2], accounts[i], ARGV[1])
  if conversation ~= '' then
    redis.call('HSET', KEYS[3], conversation, accounts[i])
    redis.call('ZADD', KEYS[4], text(now + {CONVERSATION_S!r}), conversation)
    -- A few at a time, but more than are added.
    local gone = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', ARGV[1], 'LIMIT', 0, 16)
    local over = math.min(redis.call('ZCARD', KEYS[4]) - most_conversations, 1000)
    if over > #gone then gone = redis.call('ZRANGE', KEYS[4], 0, over - 1) end
    if #gone > 0 then
      redis.call('ZREM', KEYS[4], unpack(gone))
      redis.call('HDEL', KEYS[3], unpack(gone))
    end
    keep(KEYS[3], {CONVERSATION_S!r})
    keep(KEYS[4], {CONVERSATION_S!r})
  end
end

local stays = false
if conversation ~= '' and number(redis.call('ZSCORE', KEYS[4], conversation)) > now then
  stays = redis.call('HGET', KEYS[3], conversation)
end
local order = {{}}
for i = 1, #accounts do if accounts[i] == stays then table.insert(order, i) end end
for i = 1, #accounts do if accounts[i] ~= stays then table.insert(order, i) end end

local taken, opens, refused = 0, math.huge, {{}}
for _, i in ipairs(order) do
  local at = opens_at(i, refused)
  if at == 0 then
    note(i)
    taken = i
    break
  end
  opens = math.min(opens, at)
end
return {{taken, text(opens), redis.call('HMGET', KEYS[2], unpack(accounts)), refused}}
""",
)

# keys: leases, tokens. arguments: now, lease, tokens, the rate of tokens as JSON or null.
RELEASE = LuaScript(
    "release",
    _SHARED
    + """
redis.call('ZREM', KEYS[1], ARGV[2])
local amount, rate = tonumber(ARGV[3]), cjson.decode(ARGV[4])
if rate ~= cjson.null and amount > 0 then
  count(KEYS[2], rate.limit, rate.period_s, amount, tonumber(ARGV[1]))
end
return 0
""",
)

# keys: the rates. arguments: now, '1' for at once, the rates as JSON, each with its amount.
# returns: 0 or when there is room.
SPEND = LuaScript(
    "spend",
    _SHARED
    + """
local now, at_once, rates = tonumber(ARGV[1]), ARGV[2] == '1', cjson.decode(ARGV[3])
local function each(i)
  local rate, amount = unpack(rates[i])
  return KEYS[i], rate.limit, rate.period_s, amount
end
local function all_fit_at()
  local at = 0
  for i = 1, #KEYS do
    local key, most, period, amount = each(i)
    if not at_once then amount = 0 end
    at = math.max(at, fits_at(number(redis.call('GET', key)), most, period, amount, now))
  end
  return at
end
local at = 0
if at_once then
  at = all_fit_at()
  if at > 0 then return text(at) end
end
for i = 1, #KEYS do
  local key, most, period, amount = each(i)
  count(key, most, period, amount, now)
end
if not at_once then at = all_fit_at() end
return text(at)
""",
)

# keys: health. arguments: the channel, the account, its health as the gateway has it ('' for none), and the new one.
# returns: 1 when it was that, otherwise 0; and its health as it was, '' for none.
CHANGE = LuaScript(
    "change",
    """
local found = redis.call('HGET', KEYS[1], ARGV[2]) or ''
if found ~= ARGV[3] then return {0, found} end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[4])
redis.call('PUBLISH', ARGV[1], ARGV[2] .. '\\n' .. ARGV[4])
return {1, found}
""",
)

# keys: health. arguments: the channel; then accounts and their health. Entries of the server stay.
RESTORE = LuaScript(
    "restore",
    """
for i = 2, #ARGV, 2 do
  if redis.call('HSETNX', KEYS[1], ARGV[i], ARGV[i + 1]) == 1 then
    redis.call('PUBLISH', ARGV[1], ARGV[i] .. '\\n' .. ARGV[i + 1])
  end
end
return 0
""",
)

_COUNTER = f"""
local function add(key, amount, expires)
  local sum = number(redis.call('HGET', key, 'amount')) + tonumber(amount)
  redis.call('HSET', key, 'amount', text(sum), 'expires', expires)
  if tonumber(expires) == math.huge then
    redis.call('PERSIST', key)
  else
    redis.call('PEXPIREAT', key, text(math.ceil((tonumber(expires) + {_MARGIN_S}) * 1000)))
  end
end
local function total(key, now)
  local found = redis.call('HMGET', key, 'amount', 'expires')
  if not found[1] then return '0' end
  if tonumber(found[2]) <= tonumber(now) then
    redis.call('DEL', key)
    return '0'
  end
  return found[1]
end
"""

# keys: the counter. arguments: amount, when it expires ('inf' for never).
ADD = LuaScript("add", _SHARED + _COUNTER + "add(KEYS[1], ARGV[1], ARGV[2])\nreturn 0\n")

# keys: the counter. arguments: now. returns: the sum.
TOTAL = LuaScript("total", _SHARED + _COUNTER + "return total(KEYS[1], ARGV[1])\n")

# keys: the counters. arguments: amount for the first, when that expires ('inf' for never), the limit, now.
# returns: the sum of each before.
ADD_WITHIN = LuaScript(
    "add within",
    _SHARED
    + _COUNTER
    + """
local before, all = {}, 0
for i, key in ipairs(KEYS) do
  before[i] = total(key, ARGV[4])
  all = all + tonumber(before[i])
end
if all <= tonumber(ARGV[3]) then add(KEYS[1], ARGV[1], ARGV[2]) end
return before
""",
)

# keys: those of the client keys. arguments: the fields of KeyUse; if there are values, they follow, for one key.
# returns: the fields of each.
KEY_USE = LuaScript(
    "key use",
    _SHARED
    + """
local names, fields = cjson.decode(ARGV[1]), {}
for i = 2, #ARGV do
  local before, value = number(redis.call('HGET', KEYS[1], names[i - 1])), tonumber(ARGV[i])
  local after = names[i - 1] == 'last_used' and math.max(before, value) or before + value
  redis.call('HSET', KEYS[1], names[i - 1], text(after))
end
for i, key in ipairs(KEYS) do fields[i] = redis.call('HMGET', key, unpack(names)) end
return fields
""",
)
