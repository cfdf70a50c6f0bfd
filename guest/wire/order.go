package wire

// SupervisorVersion is the version of the supervisor's protocol.
const SupervisorVersion = 1

// First arguments of the agent's program. With SupervisorWord, it supervises
// machines that are plain processes. With ConnectWord, it relays connections
// between its standard streams and the supervisor's socket. With
// NamespacesWord, it becomes the first process of such a machine.
const (
	SupervisorWord = "keeper"
	ConnectWord    = "reach"
	NamespacesWord = "place"
)

// PlainWord makes the agent's program an init that runs every process under its
// own account.
const PlainWord = "plain"

// BuildWord makes the agent's program an init that gives programs of root BuildRights.
const BuildWord = "build"

// BuildRights are the capabilities of root's programs in a sandbox with brig.Spec.BuildRights, as a
// set of bits: CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_KILL, CAP_SETGID, CAP_SETUID,
// CAP_SYS_CHROOT and CAP_SETFCAP.
const BuildRights uint64 = 1<<0 | 1<<1 | 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<18 | 1<<31

// Reached is the line that a process with ConnectWord writes when it is connected to the
// supervisor. After this line, the process's streams carry a Mux.
const Reached = "brig-keeper\n"

// Frames between a host and a supervisor.
const (
	TypeOrder Type = 40 // JSON Order, the first frame of every connection
	TypeState Type = 41 // JSON State
)

// SupervisorOp is the operation of a SupervisorRequest.
type SupervisorOp string

// Operations of a supervisor.
const (
	// SupervisorCreate creates a machine. The response is the same as for SupervisorWatch. The
	// client confirms the first State with TypeOK. If the client disconnects before that, the
	// machine is removed. A tethered machine ends with the connection.
	SupervisorCreate SupervisorOp = "make"
	// SupervisorWatch returns a State, and another State when the machine ends.
	SupervisorWatch SupervisorOp = "watch"
	// SupervisorAgent turns the connection into a connection to the machine's agent. The supervisor
	// responds only on failure.
	SupervisorAgent     SupervisorOp = "agent"
	SupervisorLease     SupervisorOp = "lease" // set the lease, and with Own remove the tether
	SupervisorStop      SupervisorOp = "stop"
	SupervisorStartMain SupervisorOp = "begin" // start the held main program
	// SupervisorWaitMain returns when the main program of a lingering machine has ended.
	SupervisorWaitMain  SupervisorOp = "over"
	SupervisorDestroy   SupervisorOp = "erase" // end a machine, and remove all of its data
	SupervisorList      SupervisorOp = "list"  // return the State of every machine
	SupervisorLog       SupervisorOp = "log"   // return the log, in FileData frames
	SupervisorAppendLog SupervisorOp = "say"   // append to the log
	SupervisorQuit      SupervisorOp = "quit"  // end the supervisor, if there are no machines
)

// ProgramsDir contains programs that take precedence over others of the same name. It also provides
// python in images that have only python3.
const ProgramsDir = "/run/brig/bin"

// SupervisorRequest is a request to a supervisor. It contains durations instead of times, because
// the supervisor only uses its own clock.
type SupervisorRequest struct {
	Version int
	Op      SupervisorOp
	ID      string `json:",omitempty"`
	Make    *Make  `json:",omitempty"`
	LeaseMS int64  `json:",omitempty"`
	Own     bool   `json:",omitempty"`
	Linger  bool   `json:",omitempty"`
	GraceMS int64  `json:",omitempty"`
	Reason  string `json:",omitempty"`
	Timed   bool   `json:",omitempty"`
	Text    []byte `json:",omitempty"`
}

// Make contains the options of a new machine.
type Make struct {
	Hostname string
	LeaseMS  int64
	Tethered bool
	// Main is the machine's main program. The machine ends with it unless it lingers.
	Main *Exec `json:",omitempty"`
	// Held means that the main program starts with SupervisorStartMain. If that request has Linger
	// set, the machine outlives its main program.
	Held bool `json:",omitempty"`
	// Bare machines use the supervisor's file system directly, except for the paths that belong to
	// the machine. Other machines use it as the lower layer of their own file system.
	Bare bool
	// Programs maps names of programs to the programs that replace them.
	Programs map[string]string `json:",omitempty"`
}

// State is the state of a machine as reported by its supervisor.
type State struct {
	ID    string
	Notes []string `json:",omitempty"`
	// Plain machines have a single account for all their programs.
	Plain bool `json:",omitempty"`
	// Tethered machines belong to a connected client.
	Tethered bool    `json:",omitempty"`
	Ended    *Ending `json:",omitempty"`
	// LeaseMS is the remaining time of the lease.
	LeaseMS int64 `json:",omitempty"`
	// NowMS is the supervisor's current time, in Unix time.
	NowMS int64
}

// Ending describes how a machine ended.
type Ending struct {
	Code   int
	Reason string
	AtMS   int64 // Unix time
}
