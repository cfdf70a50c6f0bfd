package e2b

import "time"

// SetGather changes how long output waits for more of its stream.
func (d *Door) SetGather(gather time.Duration) { d.gather = gather }

// SetSilence changes after how long a stream shows that it lives.
func (d *Door) SetSilence(silence time.Duration) { d.silence = silence }

// What tests look at.
var (
	ParseMetadata = parseMetadata
	Sign          = sign
)

// HostTarget is what a host names.
func HostTarget(host, domain string) (id string, port int, ok bool, err error) {
	t, ok, err := parseHost(host, domain)
	return t.id, t.port, ok, err
}

// CursorRoundTrip reads a cursor and writes it again.
func CursorRoundTrip(s string) (string, error) {
	c, err := parseCursor(s)
	if err != nil {
		return "", err
	}
	return c.String(), nil
}
