"""The Lua scripts of the account store on a server. Each of them is one atomic step there.

The sums follow operations.py, in the same order, so that they agree to the last bit; results are text, because
the server would cut a Lua number to an integer. Transitions of an account's health are not here: the gateway computes
them, and `CHANGE` writes one only if no other gateway was faster.

The first argument is the operation as JSON; then come the largest number of conversations and the channel for changes.
The keys come from Operation.keys(): they are never built in a script, so that servers can check who may use which.
A script returns its result, then accounts with the health that the server has ('' for none), then accounts with their
last use, if the gateway may not know them. Entries that are not needed after a while expire by themselves; what
a script decides depends only on the gateways' clock.
"""

from functools import cache

from dragoman_server.accounts.stores.tables import CONVERSATION_S, ID_S, LEASE_RETRY_S, LEASE_S, TOLERANCE_S

# Seconds for which the server holds entries after they have expired. Clocks of gateways may differ by that much.
_MARGIN_S = 60

# What each script begins with.
_BEGINNING = f"""
local op = cjson.decode(ARGV[1])
local now = op.now
local function text(number) return string.format('%.17g', number) end
local function number(found) return tonumber(found or '0') end
local function keep(key, seconds)
  redis.call('PEXPIRE', key, text(math.min(math.ceil((seconds + {_MARGIN_S}) * 1000), 1e15)))
end
local function filled(key, rate)
  local at = number(redis.call('GET', key))
  if not rate.has_debts and at > now + 2 * rate.period_s then return now end
  return math.max(at, now)
end
local function rate_available_at(key, rate, amount)
  local at = filled(key, rate) + math.min(amount, rate.limit) * rate.period_s / rate.limit - rate.period_s
  if at <= now + {TOLERANCE_S!r} then return 0 end
  return at
end
local function count(key, rate, amount)
  local after = filled(key, rate) + amount * rate.period_s / rate.limit
  redis.call('SET', key, text(after))
  keep(key, after - now)
end
"""

# Keys: health, used, the conversations' accounts, their expiries; then for each candidate requests, tokens, leases.
# Returns the candidate's number or 0, and when there is room.
RESERVE = f"""
local candidates, accounts, healths, used = op.candidates, {{}}, {{}}, {{}}
if #candidates == 0 then return {{{{0, 'inf'}}, {{}}, {{}}}} end
for i, candidate in ipairs(candidates) do
  accounts[i] = candidate.account
  candidate.requests_key, candidate.tokens_key, candidate.leases_key = unpack(KEYS, 3 * i + 2, 3 * i + 4)
end
local known = redis.call('HMGET', KEYS[1], unpack(accounts))

local function available_at(i)
  local candidate, at = candidates[i], 0
  if known[i] then
    local health = cjson.decode(known[i])
    if health.disabled ~= cjson.null then at = math.huge end
    if health.cooldown_until > now then at = math.max(at, health.cooldown_until) end
    if at > 0 then
      table.insert(healths, accounts[i])
      table.insert(healths, known[i])
    end
  end
  if candidate.requests then
    at = math.max(at, rate_available_at(candidate.requests_key, candidate.requests, 1))
  end
  if candidate.tokens then
    at = math.max(at, rate_available_at(candidate.tokens_key, candidate.tokens, 0))
  end
  local limit = candidate.max_concurrent_requests
  if limit then
    redis.call('ZREMRANGEBYSCORE', candidate.leases_key, '-inf', text(now))
    if redis.call('ZCARD', candidate.leases_key) >= limit then at = math.max(at, now + {LEASE_RETRY_S!r}) end
  end
  return at
end

local function put_conversation(account)
  redis.call('HSET', KEYS[3], op.conversation, account)
  redis.call('ZADD', KEYS[4], text(now + {CONVERSATION_S!r}), op.conversation)
  -- A few at a time, but more than are added.
  local gone = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', text(now), 'LIMIT', 0, 16)
  local over = math.min(redis.call('ZCARD', KEYS[4]) - tonumber(ARGV[2]), 1000)
  if over > #gone then gone = redis.call('ZRANGE', KEYS[4], 0, over - 1) end
  if #gone > 0 then
    redis.call('ZREM', KEYS[4], unpack(gone))
    redis.call('HDEL', KEYS[3], unpack(gone))
  end
  keep(KEYS[3], {CONVERSATION_S!r})
  keep(KEYS[4], {CONVERSATION_S!r})
end

local function record_use(i)
  local candidate = candidates[i]
  if candidate.requests then count(candidate.requests_key, candidate.requests, 1) end
  if candidate.max_concurrent_requests then
    redis.call('ZADD', candidate.leases_key, text(now + {LEASE_S!r}), op.lease)
    keep(candidate.leases_key, {LEASE_S!r})
  end
  redis.call('HSET', KEYS[2], accounts[i], text(now))
  if op.conversation ~= cjson.null then put_conversation(accounts[i]) end
end

local account_of = false
if op.conversation ~= cjson.null and number(redis.call('ZSCORE', KEYS[4], op.conversation)) > now then
  account_of = redis.call('HGET', KEYS[3], op.conversation)
end
local order = {{}}
for i = 1, #accounts do if accounts[i] == account_of then table.insert(order, i) end end
for i = 1, #accounts do if accounts[i] ~= account_of then table.insert(order, i) end end

local reserved, first_available_at = 0, math.huge
for _, i in ipairs(order) do
  local at = available_at(i)
  if at == 0 then
    record_use(i)
    reserved = i
    break
  end
  first_available_at = math.min(first_available_at, at)
end
for i, last_used in ipairs(redis.call('HMGET', KEYS[2], unpack(accounts))) do
  if last_used then
    table.insert(used, accounts[i])
    table.insert(used, last_used)
  end
end
return {{{{reserved, text(first_available_at)}}, healths, used}}
"""

# Keys: leases, tokens.
RELEASE = """
local rate = op.reservation.candidate.tokens
redis.call('ZREM', KEYS[1], op.reservation.lease)
if rate and op.tokens > 0 then count(KEYS[2], rate, op.tokens) end
return {0, {}, {}}
"""

# Keys: the rates. Returns for each 0 or when it has room.
SPEND = """
local function available_at()
  local times, full = {}, false
  for i, key in ipairs(KEYS) do
    local rate, amount = unpack(op.rates[i])
    local at = rate_available_at(key, rate, op.at_once and amount or 0)
    times[i], full = text(at), full or at > 0
  end
  return times, full
end
local times, full = available_at()
if not (op.at_once and full) then
  for i, key in ipairs(KEYS) do count(key, unpack(op.rates[i])) end
  if not op.at_once then times = available_at() end
end
return {times, {}, {}}
"""

# Keys: health. Has a list instead of the operation: each account, its health as the gateway has it, and the new one.
# Returns false when one was not that.
CHANGE = """
local done, healths = 1, {}
for _, change in ipairs(op) do
  local account, before, after = unpack(change)
  local found = redis.call('HGET', KEYS[1], account) or ''
  if found == before then
    redis.call('HSET', KEYS[1], account, after)
    redis.call('PUBLISH', ARGV[3], account .. '\\n' .. after)
    found = after
  else
    done = false
  end
  table.insert(healths, account)
  table.insert(healths, found)
end
return {done, healths, {}}
"""

# Keys: the counters; then, if the amount has a lease, the leases of the first. Returns the sum of each before.
ADD = f"""
local before, sum, leases = {{}}, 0, KEYS[#op.counters + 1]
for i = 1, #op.counters do
  local key = KEYS[i]
  local amount, expires = unpack(redis.call('HMGET', key, 'amount', 'expires'))
  if amount and tonumber(expires) <= now then amount = false end
  before[i] = amount or '0'
  sum = sum + tonumber(before[i])
end
local key, expires = KEYS[1], op.counters[1][2]
if expires == cjson.null then expires = math.huge end
local function put()
  if not leases then return true end
  if op.amount < 0 then return redis.call('ZREM', leases, op.lease) > 0 end
  return redis.call('ZADD', leases, text(expires), op.lease) > 0
end
local function keep_until(key)
  if expires == math.huge then
    redis.call('PERSIST', key)
  else
    redis.call('PEXPIREAT', key, text(math.ceil((expires + {_MARGIN_S}) * 1000)))
  end
end
if op.amount ~= 0 and (op.limit == cjson.null or sum <= op.limit) and put() then
  local after = math.max(tonumber(before[1]) + op.amount, 0)
  redis.call('HSET', key, 'amount', text(after), 'expires', text(expires))
  keep_until(key)
  if leases then keep_until(leases) end
end
return {{before, {{}}, {{}}}}
"""

# Keys: the ids.
BIND_IDS = f"""
for _, key in ipairs(KEYS) do
  local account = redis.call('GET', key)
  if not account or account == op.account then redis.call('SET', key, op.account, 'EX', {ID_S:.0f}) end
end
return {{0, {{}}, {{}}}}
"""

# Keys: the ids. Returns the account of the first known one, or ''.
FIND_ACCOUNT = """
for _, key in ipairs(KEYS) do
  local account = redis.call('GET', key)
  if account then return {account, {}, {}} end
end
return {'', {}, {}}
"""

# Keys: the tables of client keys. Returns names and tables in turn, or 0.
READ_KEY_TABLES = """
if (redis.call('HGET', KEYS[1], '') or '') == op.known then return {0, {}, {}} end
return {redis.call('HGETALL', KEYS[1]), {}, {}}
"""

# Keys: the tables of client keys. Returns 1, or 0 if the table was another one.
WRITE_KEY_TABLE = """
if (redis.call('HGET', KEYS[1], op.name) or '') ~= op.before then return {0, {}, {}} end
if op.after == '' then redis.call('HDEL', KEYS[1], op.name) else redis.call('HSET', KEYS[1], op.name, op.after) end
redis.call('HSET', KEYS[1], '', op.version)
return {1, {}, {}}
"""


@cache
def whole(script: str) -> str:
    """Return a script with what each one begins with."""
    return _BEGINNING + script
