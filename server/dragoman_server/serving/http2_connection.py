"""h2's connection with limits on what a peer may do. It resets one stream where RFC 9113 requires that and h2 4.4 ends
the connection.

h2 passes each frame to `_receive_frame`, so frames are counted and errors handled there. Most checks are h2's; this
module adds the missing ones. That method is private, and so is where h2 keeps bytes and unsent frames, so
pyproject.toml pins h2 to a minor version.
"""

from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.events import Event, StreamReset
from h2.exceptions import DenialOfServiceError, FlowControlError, ProtocolError
from h2.frame_buffer import FrameBuffer
from h2.settings import SettingCodes, Settings
from hpack.exceptions import HPACKError
from hyperframe import frame as frames

from dragoman_server.serving.frame_rate import CONTROL_FRAMES, SMALL_DATA, FrameRate, TokenBucket

# Bytes of request bodies that a client may send before the application has read any: of one stream, and of all streams.
# The first is enough for 20 Mbit/s with a round trip of 0.1 s.
STREAM_WINDOW = 256 * 1024
CONNECTION_WINDOW = 1024 * 1024

# Streams above the limit that h2 passes on, for the caller to refuse.
MAX_EXCESS = 512

# Bytes of the frames that one call of receive() handles, and what the smallest counts: ten bytes can be a request,
# which takes some 300 microseconds, or a millisecond with many fields.
_READ_SIZE = 4 * 1024
_FRAME = 1024

# Bytes that are framed and not written yet. Bodies are framed when there is room, so these are heads, and responses to
# control frames: 128 streams make some 100 KiB. A client with more sends requests and does not read.
MAX_UNSENT = 512 * 1024

# The largest table of headers for responses (RFC 7541, 4.2: it may be smaller than the client allows).
_HEADER_TABLE = 4096


# Limits on frames that cost work and have no content; a request that is reset costs some 500 microseconds.
#
# A client may cancel all of its 128 streams three times in a row. CVE-2023-44487 (rapid reset: it opens and resets),
# and CVE-2025-8671 (made you reset: it makes us reset what it has opened): some hundred thousand a second.
_RESETS = FrameRate(400, 50)
# Each is applied to all open streams. Clients send one or two in all.
_SETTINGS = FrameRate(100, 10)

_RATES: dict[type[frames.Frame], tuple[str, FrameRate]] = {
    frames.PingFrame: ("PING", CONTROL_FRAMES),
    frames.PriorityFrame: ("PRIORITY", CONTROL_FRAMES),
    frames.ExtensionFrame: ("unknown", CONTROL_FRAMES),
    frames.AltSvcFrame: ("unknown", CONTROL_FRAMES),
    frames.SettingsFrame: ("SETTINGS", _SETTINGS),
    frames.RstStreamFrame: ("RST_STREAM", _RESETS),
    # In addition to those that follow our DATA frames, see UPDATES_PER_DATA.
    frames.WindowUpdateFrame: ("WINDOW_UPDATE", CONTROL_FRAMES),
    # Without content, see SMALL_DATA.
    frames.DataFrame: ("empty DATA", CONTROL_FRAMES),
}
# Requests beyond the limit on streams. A client that has not received the limit may send a round trip's worth.
_EXCESS = ("excess HEADERS", CONTROL_FRAMES)

# A client opens the window once for the stream and once for the connection; some do it in several steps.
UPDATES_PER_DATA = 8


class HTTP2Connection(H2Connection):
    """A server's side of one connection. The settings and the window of the connection are the first to be sent.

    Args:
        max_streams: open at the same time; at most MAX_EXCESS more are events too, for the caller to refuse.
        max_header_bytes: of one header list, as RFC 9113, 6.5.2 counts.
        now: see receive().

    Attributes:
        websockets: The streams of WebSockets, which count their own frames: only DATA frames without content count too.
        peer_has_ended: By a GOAWAY without an error, so it opens no more streams.
    """

    def __init__(self, max_streams: int, max_header_bytes: int, now: float) -> None:
        super().__init__(H2Configuration(client_side=False, header_encoding=None))
        self._now = now
        self._buckets: dict[str, TokenBucket] = {}
        self._has_settings = False
        self.websockets: set[int] = set()
        self.peer_has_ended = False

        values = {
            SettingCodes.MAX_CONCURRENT_STREAMS: max_streams,
            SettingCodes.MAX_HEADER_LIST_SIZE: max_header_bytes,
            SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            SettingCodes.ENABLE_CONNECT_PROTOCOL: 1,  # WebSockets (RFC 8441)
        }
        self.local_settings = Settings(client=False, initial_values=values)
        self.initiate_connection()
        self.increment_flow_control_window(CONNECTION_WINDOW - self.inbound_flow_control_window)
        # h2 4.4 connection.py:1605: one stream too many ends the connection, even if the client has not received the
        # limit yet. It is a stream error (RFC 9113, 5.1.2); so h2 lets more through, which the caller refuses.
        values[SettingCodes.MAX_CONCURRENT_STREAMS] += MAX_EXCESS
        self.local_settings = Settings(client=False, initial_values=values)
        # A list that is a little too large gets a 431; one that is far too large ends the connection,
        # because the decoder stops within it and what follows cannot be read (CVE-2016-6581).
        self.decoder.max_header_list_size = 2 * max_header_bytes
        # Encoders send no more than the list has. To decode that takes 8 ms for 64 KiB.
        self.incoming_buffer = self._frames = _FrameBuffer(max_header_bytes)

    @property
    def has_more(self) -> bool:
        """There may be frames in the bytes so far: receive() is to be called again, without bytes."""
        return self._frames.left <= 0

    def receive(self, data: bytes | memoryview, now: float) -> list[Event]:
        """Parse bytes into the events of a few frames, see has_more. now: seconds of a monotonic clock.

        Raises ProtocolError if the connection has to end; then the GOAWAY is in data_to_send().
        """
        self._now = now
        self._frames.left = _READ_SIZE
        try:
            return self.receive_data(data)
        except ProtocolError as error:
            if self.state_machine.state is not ConnectionState.CLOSED:  # the preface is wrong
                self.close_connection(error.error_code)
            raise

    def send_part(self, stream_id: int, data: bytes) -> None:
        """Write a DATA frame that is not the last one, and for which both windows have room.

        It changes nothing else, and h2's send_data() takes thirty calls for it: a third of an event.
        """
        self._data_to_send += b"%b\0\0%b%b" % (len(data).to_bytes(3), stream_id.to_bytes(4), data)
        self.outbound_flow_control_window -= len(data)
        self.streams[stream_id].outbound_flow_control_window -= len(data)

    def note_data_sent(self) -> None:
        """Allow for the WINDOW_UPDATE frames that a client sends after our DATA frame."""
        bucket = self._buckets.get(_RATES[frames.WindowUpdateFrame][0])
        if bucket is not None:
            bucket.add(UPDATES_PER_DATA)

    def announce_end(self) -> None:
        """Write a GOAWAY and let the open streams finish (RFC 9113, 6.8), which h2's close_connection() does not."""
        goaway = frames.GoAwayFrame(
            0, last_stream_id=self.highest_inbound_stream_id, error_code=ErrorCodes.NO_ERROR
        )
        self._prepare_for_sending([goaway])

    def refuse(self, stream_id: int, error_code: ErrorCodes) -> None:
        """Reset a stream because of what its client has sent. Raises ProtocolError like receive()."""
        if self.is_open(stream_id):
            self.reset_stream(stream_id, error_code)
        try:
            self._count(
                *(_EXCESS if error_code is ErrorCodes.REFUSED_STREAM else _RATES[frames.RstStreamFrame])
            )
        except ProtocolError as error:
            self.close_connection(error.error_code)
            raise

    @property
    def unsent(self) -> int:
        """Bytes that data_to_send() would return."""
        return len(self._data_to_send)

    def is_open(self, stream_id: int) -> bool:
        stream = self.streams.get(stream_id)
        return stream is not None and stream.open

    def _receive_frame(self, frame: frames.Frame) -> list[Event]:
        self._check_order(frame)
        small = 1 if frame.stream_id in self.websockets else SMALL_DATA
        if not (
            isinstance(frame, frames.DataFrame) and ("END_STREAM" in frame.flags or len(frame.data) >= small)
        ):
            self._count(*_RATES.get(type(frame), ("", None)))
        if isinstance(frame, frames.PriorityFrame):
            return []  # deprecated, and advisory ever since (RFC 9113, 5.3.2)
        if isinstance(frame, frames.GoAwayFrame) and frame.error_code == ErrorCodes.NO_ERROR:
            # "the sender ... might still be processing streams" (RFC 9113, 6.8); h2 4.4 connection.py:1893 ends all.
            self.peer_has_ended = True
            return []
        if isinstance(frame, frames.SettingsFrame):
            _keep_known_settings(frame)
        try:
            events = super()._receive_frame(frame)
        except ProtocolError as error:
            events = self._end_stream_for(error, frame)
        if not isinstance(frame, frames.RstStreamFrame) and any(
            isinstance(event, StreamReset) for event in events
        ):
            self._count(*_RATES[frames.RstStreamFrame])
        if self.unsent > MAX_UNSENT:
            raise DenialOfServiceError("the client does not read what it requests")
        return events

    def _check_order(self, frame: frames.Frame) -> None:
        if not self._has_settings:
            # "The client connection preface ... MUST be followed by a SETTINGS frame" (RFC 9113, 3.4)
            if not isinstance(frame, frames.SettingsFrame) or "ACK" in frame.flags:
                raise ProtocolError("the first frame is not a SETTINGS frame")
            self._has_settings = True
        if isinstance(frame, frames.ContinuationFrame):
            # h2 has joined the valid ones with their HEADERS; for some of the others it would reset only the stream.
            raise ProtocolError("CONTINUATION without HEADERS (RFC 9113, 6.10)")
        if isinstance(frame, frames.RstStreamFrame) and (
            frame.stream_id % 2 == 0 or frame.stream_id > self.highest_inbound_stream_id
        ):
            raise ProtocolError("RST_STREAM for an idle stream (RFC 9113, 6.4)")

    def _count(self, what: str, rate: FrameRate | None) -> None:
        if rate is None:
            return
        bucket = self._buckets.get(what)
        if bucket is None:
            bucket = self._buckets[what] = TokenBucket(rate, self._now)
        if not bucket.take(self._now):
            raise DenialOfServiceError(f"too many {what} frames")

    def _end_stream_for(self, error: ProtocolError, frame: frames.Frame) -> list[Event]:
        """Reset the stream if only one request is malformed (RFC 9113, 8.1.1); else raise the error again."""
        if isinstance(error.__cause__, HPACKError) and not isinstance(error, DenialOfServiceError):
            # "MUST be treated as a connection error of type COMPRESSION_ERROR" (RFC 9113, 4.3)
            error.error_code = ErrorCodes.COMPRESSION_ERROR
            raise error
        stream_id = frame.stream_id
        if (
            not isinstance(frame, frames.HeadersFrame | frames.DataFrame)
            or isinstance(error, FlowControlError | DenialOfServiceError)
            or not self.is_open(stream_id)
        ):
            raise error
        if isinstance(frame, frames.DataFrame):
            self.acknowledge_received_data(frame.flow_controlled_length, stream_id)
        self.reset_stream(stream_id, ErrorCodes.PROTOCOL_ERROR)
        return [StreamReset(stream_id=stream_id, error_code=ErrorCodes.PROTOCOL_ERROR, remote_reset=False)]


class _FrameBuffer(FrameBuffer):
    """h2's buffer of received bytes, whose frames are taken until `left` bytes are.

    max_block: bytes of a compressed header list.
    """

    def __init__(self, max_block: int) -> None:
        super().__init__(server=True)
        self.left = 0
        self._max_block = max_block

    def __next__(self) -> frames.Frame:
        if self.left <= 0:
            raise StopIteration
        if len(self._data) >= 9:
            length = int.from_bytes(self._data[:3])
            # h2 4.4 frame_buffer.py:158 waits for all of a frame before it compares its length, up to 16 MiB.
            self._validate_frame_length(length)
            if len(self._data) >= 9 + length:
                self.left -= max(length, _FRAME)
        return super().__next__()

    def _update_header_buffer(self, f: frames.Frame | None) -> frames.Frame | None:
        # Before it is decoded, because the decoder does not count what adds nothing to the list, such as a change of
        # the table's size, and a megabyte of that takes a second. A HEADERS frame alone is smaller.
        if isinstance(f, frames.ContinuationFrame) and (
            len(f.data) + sum([len(part.data) for part in self._headers_buffer]) > self._max_block
        ):
            raise DenialOfServiceError("a header list is too large")
        return super()._update_header_buffer(f)


def _keep_known_settings(frame: frames.SettingsFrame) -> None:
    """Drop unknown settings, because h2 keeps a queue for each number, and limit the size of the header table."""
    settings = {code: value for code, value in frame.settings.items() if code in _KNOWN_SETTINGS}
    if settings.get(SettingCodes.HEADER_TABLE_SIZE, 0) > _HEADER_TABLE:
        settings[SettingCodes.HEADER_TABLE_SIZE] = _HEADER_TABLE
    frame.settings = settings


_KNOWN_SETTINGS = frozenset(SettingCodes)
