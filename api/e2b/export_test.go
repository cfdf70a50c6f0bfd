package e2b

import "time"

// SetFlushDelay changes how long output is buffered to combine it with later
// output of its stream.
func (a *API) SetFlushDelay(flushDelay time.Duration) { a.interpreter.flushDelay = flushDelay }

// SetKeepaliveInterval changes the interval of keepalives on a silent stream.
func (a *API) SetKeepaliveInterval(keepaliveInterval time.Duration) {
	a.interpreter.keepaliveInterval = keepaliveInterval
}

// Functions that tests call.
var (
	ParseMetadata = parseMetadata
	Sign          = sign
)

// HostTarget returns the sandbox and port in a host name.
func HostTarget(host, domain string) (id string, port int, ok bool, err error) {
	t, ok, err := parseHost(host, domain)
	return t.id, t.port, ok, err
}

// CursorRoundTrip parses a cursor and formats it again.
func CursorRoundTrip(s string) (string, error) {
	c, err := parseCursor(s)
	if err != nil {
		return "", err
	}
	return c.String(), nil
}
