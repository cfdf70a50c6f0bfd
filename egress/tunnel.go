package egress

import (
	"io"
	"net"
	"sync"
)

// tunnel carries bytes both ways until both have ended. What the sandbox says
// first must not be for another host than the one that it was let through to;
// if it is, tunnel says so and nothing of it has gone out.
func tunnel(here, there net.Conn, host string) (why string) {
	var ways sync.WaitGroup
	ways.Go(func() {
		if _, err := io.Copy(here, there); err != nil {
			_ = there.Close()
			_ = here.Close()
			return
		}
		_ = closeWrite(here)
	})
	why = forward(there, here, host)
	if why != "" {
		_ = there.Close()
		_ = here.Close()
	}
	ways.Wait()
	return why
}

// forward carries what the sandbox sends.
func forward(there, here net.Conn, host string) (why string) {
	if host != "" {
		first, why := sniff(here, host)
		if why != "" {
			return why
		}
		if _, err := there.Write(first); err != nil {
			_ = here.Close()
			return ""
		}
	}
	if _, err := io.Copy(there, here); err != nil {
		_ = there.Close()
		_ = here.Close()
		return ""
	}
	_ = closeWrite(there)
	return ""
}
