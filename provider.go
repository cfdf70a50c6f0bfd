package brig

import (
	"context"
	"io"
	"net"
	"time"
)

// Provider makes isolated machines. It knows nothing of tenants, quotas or
// audit: by the time it is called the engine has said yes. Specs that reach
// it are complete: every default is filled in and Spec.Image is a digest.
type Provider interface {
	Capabilities() Capabilities
	// Create makes a machine and returns when commands can run in it. The
	// lease is its own until Extend; on an error nothing is left.
	Create(ctx context.Context, id ID, spec Spec, lease time.Time) (Instance, error)
	// Recover finds a machine again. One that has ended is returned as such,
	// its Done closed; a handle of which nothing is known is NotFound.
	Recover(ctx context.Context, id ID, h Handle) (Instance, error)
	// Sweep removes whatever this provider made that none of known owns, and
	// reports how many such things it found. Machines that belong to other
	// processes that live (one-shots of a command line) are not touched.
	Sweep(ctx context.Context, known map[ID]bool) (int, error)
}

// Capabilities says what a provider can honour, so that the engine refuses
// at admission and not half way.
type Capabilities struct {
	Name string
	// Isolation is what stands between guest and host: "gvisor", "none".
	Isolation string
	// Uplinks says that machines can have one (Instance.Uplink): without, they
	// cannot connect to anything, and there can be no rules of where to.
	Uplinks bool
	// Enforces says how far each area is enforced on this host. An area that is
	// not there is not.
	Enforces map[Area]Enforcement
	// RunsOnly says that there are no machines to be had, only programs to be
	// run: Create is Unimplemented, and the provider is a Runner.
	RunsOnly bool
}

// Runner is a Provider to which programs are given whole: another service
// makes the machine, runs one in it and ends it.
type Runner interface {
	// Run runs a program to its end under an id that the caller chose. Of the
	// program every default is filled in, and its image is as the caller gave
	// it. Given writers receive output as it comes. An error that is Elsewhere
	// has ErrBegan as a cause if some of the program may have run.
	Run(ctx context.Context, id ID, p Program, sio IO) (*Outcome, error)
}

// Imager is a Provider with images of its own, in the stead of the server's.
type Imager interface {
	// Image finds the one that a Spec means; NotFound.
	Image(ctx context.Context, ref string) (*Image, error)
}

// Checker is a Provider that may be out of reach.
type Checker interface {
	// Check asks whether it can be used now, at little cost. The error is what
	// a caller would get.
	Check(ctx context.Context) error
}

// Instance is one machine.
type Instance interface {
	Handle() Handle
	// Notes are what a caller should know of this machine's limits.
	Notes() []string
	// Enforced says how far each area is enforced on this very machine, as the
	// host sees it: what can be read back is, and what the guest says does not
	// count. It is at most what Capabilities has.
	Enforced(ctx context.Context) (map[Area]Enforcement, error)
	// Exec runs one command under an id that the caller chose and streams its
	// output to sio, whose writers are not nil. When ctx ends the process is
	// killed unless cmd.Survive. When the machine dies under it, the verdict
	// is in the result (OOMKilled) or the error is FailedPrecondition.
	Exec(ctx context.Context, id string, cmd Command, sio IO) (*Result, error)
	// Bind makes of a machine that was created with Spec.Blank the one that
	// spec describes. Its image, memory, processors and disk are what they
	// were at creation, its lease and everything else is spec's. One that
	// stays ephemeral may keep the lease it had: its maker ends it.
	Bind(ctx context.Context, spec Spec, lease time.Time) error
	// Begin starts the main program of a machine that was created with
	// Spec.Held. If it lingers, the program's end is not the machine's: that
	// waits to be stopped, and ends with the program's code if it is for Exited.
	// Further calls do nothing.
	Begin(ctx context.Context, linger bool) error
	// Over waits until the main program of a machine that lingers has ended.
	// It is an error when the machine ends before.
	Over(ctx context.Context) error
	// Start starts one command under an id that the caller chose, and does
	// not wait for it. Its timeout is not looked at.
	Start(ctx context.Context, id string, cmd Command, s Streams) (Process, error)
	// Keep makes a process that Start returned outlive this server, with a
	// note, under its id; an empty note lets go of it. Kept finds what is kept.
	Keep(ctx context.Context, p Process, note []byte) error
	Kept(ctx context.Context) ([]Kept, error)
	// Freeze stops the machine's clock until Thaw: nothing in it runs.
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
	// Execs returns the executions that the machine itself remembers.
	Execs(ctx context.Context) ([]*Execution, error)
	// Put writes files below dir, as the command's user would.
	Put(ctx context.Context, dir string, files []File) error
	// Collect reads the artifacts in dir, and names those that were too many
	// or too large.
	Collect(ctx context.Context, dir string) (files []File, skipped []string, err error)
	// Trees carries its directories.
	Trees
	// Files are the machine's.
	Files() Files
	// Dial connects to a port inside; see Service.Dial.
	Dial(ctx context.Context, port int) (net.Conn, error)
	// Uplink gives the machine a network interface with the addresses of UplinkNetwork,
	// and returns its other end. A machine has one at a time: a second takes
	// the place of the first. The machine trusts the authority, certificates
	// in PEM, besides those of its image; none is none. They are among those
	// in /etc/ssl/certs/ca-certificates.crt, and alone in brig.pem beside it.
	// Unimplemented where no machine can have one, FailedPrecondition where this
	// one cannot because its Spec had no rules.
	Uplink(ctx context.Context, authority []byte) (Uplink, error)
	// Logs opens the log of the main program and of executions; valid also
	// after the machine's end, until Destroy.
	Logs(ctx context.Context) (io.ReadCloser, error)
	// TimedLogs is Logs with LogTime before every line.
	TimedLogs(ctx context.Context) (io.ReadCloser, error)
	// Log appends what an execution wrote.
	Log(p []byte) error
	// Usage is what the machine has used; Unimplemented where nobody counts.
	Usage(ctx context.Context) (*Usage, error)
	// Extend moves the lease.
	Extend(ctx context.Context, lease time.Time) error
	// Stop asks the machine's programs to end, waits for grace and ends it.
	// No grace kills at once. It returns when the machine is gone.
	Stop(ctx context.Context, grace time.Duration, why ExitReason) error
	// Destroy ends the machine and removes all that is left of it.
	Destroy(ctx context.Context) error
	// Done is closed when the machine is gone, however it went.
	Done() <-chan struct{}
	// Exit says how it went; nil before Done is closed.
	Exit() *Exit
}

// Handle lets a provider find an instance again after a restart. It is
// opaque to everyone else.
type Handle struct {
	Provider string
	Version  int
	State    []byte
}
