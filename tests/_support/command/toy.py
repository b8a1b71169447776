"""A program for `dragoman run`, which reports what it gets as lines on stdout.

Its arguments: `env NAMES...` prints variables as JSON; `exit N`; `die NAME` ends it by a signal; `signals N` prints the
name of each signal, and ends after N of them; `stop` stops itself, then prints "continued"; `terminal` prints whether
stdin is a terminal whose foreground group it is in; `post MODEL` sends a request; `leave MODEL` ends while a process of
its own still reads a stream; `wait` prints the gateway's address, and ends with stdin.
"""

import json
import os
import signal
import sys
import urllib.error
import urllib.request


def _report(*words: object) -> None:
    print(*words, flush=True)


def _count_signals(wanted: int) -> None:
    seen: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    _report("ready", os.getpid())
    while len(seen) < wanted:
        seen.append(signal.sigwait(numbers))
        _report(signal.Signals(seen[-1]).name)
    # One that comes twice is pending by now, because it was sent before this one was reported.
    _report("more", len(signal.sigpending()))


def _request(model: str, *, stream: bool) -> urllib.request.Request:
    body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "Hello"}]}
    return urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )


def _post(model: str) -> None:
    try:
        with urllib.request.urlopen(_request(model, stream=False)) as response:
            _report(json.load(response)["choices"][0]["message"]["content"])
    except urllib.error.HTTPError as error:
        _report(error.code)


def _leave(model: str) -> None:
    with urllib.request.urlopen(_request(model, stream=True)) as response:
        response.readline()
        if os.fork():
            os._exit(0)
        _report(response.read().splitlines()[-2].decode())


def main(action: str, *arguments: str) -> None:
    match action:
        case "env":
            _report(json.dumps({name: os.environ.get(name) for name in arguments}))
        case "environ":
            _report(json.dumps(dict(os.environ)))
        case "exit":
            sys.exit(int(arguments[0]))
        case "die":
            os.kill(os.getpid(), signal.Signals[arguments[0]])
        case "signals":
            _count_signals(int(arguments[0]))
        case "stop":
            _report("stopping", os.getpid())
            os.kill(os.getpid(), signal.SIGSTOP)
            _report("continued")
        case "terminal":
            _report(os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp())
        case "post":
            _post(arguments[0] if arguments else os.environ["OPENAI_MODEL"])
        case "leave":
            _leave(arguments[0])
        case "wait":
            _report(os.environ["OPENAI_BASE_URL"])
            sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
