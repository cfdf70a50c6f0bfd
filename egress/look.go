package egress

import "net"

// look serves the requests of a connection, each of which is judged.
func (s *Session) look(f *flow, event Event, answer func() (net.Conn, error)) {
	event.Why = "requests cannot be looked at here"
	s.report(event)
}
