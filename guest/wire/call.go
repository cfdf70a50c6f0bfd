package wire

// Op is what a Call asks for.
type Op string

// The calls that an agent answers.
const (
	OpExec    Op = "exec"    // run a process and stream it
	OpKill    Op = "kill"    // kill the process tree of an exec
	OpExecs   Op = "execs"   // list the executions that are remembered
	OpPut     Op = "put"     // write files
	OpCollect Op = "collect" // read artifacts
	OpStop    Op = "stop"    // SIGTERM to everything, wait, then exit
	OpPing    Op = "ping"
	OpSignal  Op = "signal" // signal the first process of an exec and its group
	OpName    Op = "name"   // give the sandbox its host name
	OpResize  Op = "resize" // say how large a terminal is
	OpDial    Op = "dial"   // connect to a port; bytes follow the answer
	OpUplink  Op = "uplink" // make a network interface; packets follow the answer

	// Of processes whose descriptors the agent has (Exec.Carried).
	OpOutput Op = "output" // take over its output and messages, and send it messages
	OpInput  Op = "input"  // send its standard input, as Stdin frames
	OpAdopt  Op = "adopt"  // take charge of one that is there
	OpKeep   Op = "keep"   // say whether it stays when nobody has charge of it

	// Of an agent that has nobody on the host to look after it.
	OpMain  Op = "main"  // run the program whose end is the machine's
	OpOver  Op = "over"  // answer with the Exit of one that lingers, when it has ended
	OpLease Op = "lease" // say how long the machine has
)

// Call opens a connection: the one thing that is asked on it.
type Call struct {
	Version int
	Op      Op
	Exec    *Exec    `json:",omitempty"`
	Put     *Put     `json:",omitempty"`
	Collect *Collect `json:",omitempty"`
	Kill    *Kill    `json:",omitempty"`
	Stop    *Stop    `json:",omitempty"`
	Signal  *Signal  `json:",omitempty"`
	Name    string   `json:",omitempty"`
	Resize  *Resize  `json:",omitempty"`
	Port    int      `json:",omitempty"`
	FS      *FS      `json:",omitempty"`
	Uplink  *Uplink  `json:",omitempty"`
	Tree    *Tree    `json:",omitempty"`
	// ID is the exec's that an output, an input or an adoption is about.
	ID    string `json:",omitempty"`
	Keep  *Keep  `json:",omitempty"`
	Lease *Lease `json:",omitempty"`
}

// Exec asks for a process. A connection that is lost never kills it; only
// a Kill does, and its own clock.
type Exec struct {
	ID    string
	Argv  []string `json:",omitempty"`
	Shell string   `json:",omitempty"` // a script for the image's shell, instead of Argv
	Env   []string // all of it, as K=V
	Dir   string
	UID   uint32
	GID   uint32
	// Processes and OpenFiles are the process's resource limits; 0 keeps the
	// agent's own.
	Processes uint64
	OpenFiles uint64
	// Keep is how many bytes of each stream the agent remembers.
	Keep int
	// TimeoutMS is the agent's own clock, behind the host's: it counts when
	// no host is there. 0 is none.
	TimeoutMS int64
	// Result opens descriptor 3 for the process.
	Result bool
	// Donated says that the host hands over the process's descriptors 0 to 3,
	// with one more byte after the call; the agent does not carry their bytes.
	Donated bool `json:",omitempty"`
	// Carried says that the process gets such descriptors, and that their other
	// ends are the agent's: calls of their own carry what comes and goes.
	Carried bool `json:",omitempty"`
	// Plain says that a donated or carried process gets no descriptor 3.
	Plain bool `json:",omitempty"`
	// Lingers says of a main program that its end is not the machine's.
	Lingers bool `json:",omitempty"`
	// Terminal makes one the standard streams of a donated or carried process;
	// the agent carries its bytes between it and the descriptors 0 and 1.
	Terminal *Terminal `json:",omitempty"`
}

// Terminal is the size of a terminal in characters.
type Terminal struct{ Columns, Rows uint16 }

// Resize asks to change the size of an exec's terminal.
type Resize struct {
	ID string
	Terminal
}

// Started is what is known of a process that runs.
type Started struct{ PID int }

// AgentFile is the agent's own program, as the first word of an Exec's Argv.
const AgentFile = "/proc/1/exe"

// Donated is how many descriptors come with a donated Exec.
const Donated = 4

// Kill asks for the end of an exec's process tree. It is a call of its own,
// because the exec's connection may be full of input that nobody reads.
type Kill struct {
	ID string
}

// Signal asks to signal an exec's first process and its process group. It is
// no error when that has ended.
type Signal struct {
	ID     string
	Number int
}

// Keep says whether an exec's descriptors stay open when no call holds it.
type Keep struct {
	ID string
	On bool
}

// Lease says how long the machine has from now on. Own says that it no longer
// ends with the sessions of who it was for.
type Lease struct {
	MS  int64
	Own bool `json:",omitempty"`
}

// The exit codes of an agent that ends its machine by itself.
const (
	ExitLease  = 120 // its lease is over
	ExitTether = 121 // whoever it was for has gone
)

// The words after the agent's program with which it is a machine's init and
// takes sessions, and with which it carries one between its standard streams
// and that init. After ServeWord come how long the machine has, in
// milliseconds, TetherWord if it is to end with its sessions, and UplinkWord if
// it takes the device of an Uplink for itself.
const (
	ServeWord  = "serve"
	RelayWord  = "relay"
	TetherWord = "tethered"
	UplinkWord = "uplink"
)

// AgentID is the user and the group of an agent in a sandbox. It believes whoever
// is that user, so that no program may be.
const AgentID = 64999

// SessionSocket is the abstract socket on which an agent takes sessions: each
// is a Mux, from a process of the agent's own user.
const SessionSocket = "@brig-agent"

// Exit is how a process ended.
type Exit struct {
	Code     int // exit code when it exited
	Signal   int // the signal that ended it, 0 when it exited
	TimedOut bool
}

// Error is why a call could not be done. Kind is "not_found", "invalid",
// "exhausted" (a limit was hit), "unimplemented", "refused" (nobody listens), "exists", "loop"
// (of symbolic links), "excess" (more than can be answered) or "internal";
// Field is the part of the call that is at fault: "command", "cwd", "files",
// "path".
type Error struct {
	Kind    string
	Field   string `json:",omitempty"`
	Message string
}

// Execution is one execution as the agent remembers it.
type Execution struct {
	ID        string
	Argv      []string
	Shell     string
	StartedMS int64 // Unix time
	EndedMS   int64 // 0 while it runs
	Exit      *Exit // nil while it runs
	Stdout    Output
	Stderr    Output
}

// Output is a stream's head and tail, and how many bytes there were.
type Output struct {
	Head, Tail []byte
	Total      int64
}

// Put asks to write the files that follow, below Dir.
type Put struct {
	Dir string
	UID uint32
	GID uint32
}

// File opens one file: the next Size bytes of FileData are its content.
type File struct {
	Path string
	Mode uint32
	Size int64
}

// Collect asks for the regular files directly in Dir whose names end in one
// of Extensions, at most Count of them and Size bytes each.
type Collect struct {
	Dir        string
	Extensions []string
	Count      int
	Size       int64
}

// Stop asks the agent to end everything within GraceMS.
type Stop struct {
	GraceMS int64
}
