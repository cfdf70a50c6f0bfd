package guest

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig/guest/wire"
)

// fdset is one side of the descriptors 0 to 3 of a process.
type fdset [wire.Donated]int

func (s fdset) close() {
	for _, fd := range s {
		unix.Close(fd)
	}
}

// newChannels creates a process's descriptors: pipes for its standard streams,
// as programs expect, and a socket for its messages.
func newChannels() (ours, theirs fdset, err error) {
	var openFDs []int
	defer func() {
		if err != nil {
			for _, fd := range openFDs {
				unix.Close(fd)
			}
		}
	}()
	for i := range 3 {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return ours, theirs, fmt.Errorf("make pipe: %w", err)
		}
		openFDs = append(openFDs, p[0], p[1])
		// The program's user may open the pipe again by name (/dev/stdout). It is
		// not the pipe's owner: it exists only in the guest. Other users of the
		// guest may not enter the program's directory in /proc.
		if err := unix.Fchmod(p[0], 0o666); err != nil {
			return ours, theirs, fmt.Errorf("share pipe: %w", err)
		}
		if ours[i], theirs[i] = p[0], p[1]; i == 0 {
			ours[i], theirs[i] = p[1], p[0]
		}
	}
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ours, theirs, fmt.Errorf("make socket: %w", err)
	}
	openFDs = append(openFDs, p[0], p[1])
	ours[3], theirs[3] = p[0], p[1]
	return ours, theirs, unix.SetNonblock(ours[0], true)
}

// sendTo passes the descriptors over a connection to the agent.
func (s fdset) sendTo(c net.Conn) error {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return errors.New("descriptors can only be handed over on a unix socket")
	}
	if _, _, err := uc.WriteMsgUnix([]byte{0}, unix.UnixRights(s[:]...), nil); err != nil {
		return fmt.Errorf("hand descriptors to agent: %w (%w)", ErrLost, err)
	}
	return nil
}
