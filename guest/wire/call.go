package wire

import (
	"encoding/binary"
	"strconv"
	"strings"
	"syscall"
)

// Op is the operation of a Call.
type Op string

// Operations of an agent.
const (
	OpExec    Op = "exec"    // run a process and stream it
	OpKill    Op = "kill"    // kill the process tree of an exec
	OpExecs   Op = "execs"   // list the retained executions
	OpPut     Op = "put"     // write files
	OpCollect Op = "collect" // read artifacts
	OpStop    Op = "stop"    // send SIGTERM to every process, wait, then exit
	OpPing    Op = "ping"
	OpSignal  Op = "signal" // signal the first process of an exec and its group
	OpName    Op = "name"   // set the sandbox's host name
	OpResize  Op = "resize" // set the size of a terminal
	OpDial    Op = "dial"   // connect to a port; the connection's data follows the response
	OpRenew   Op = "renew"  // give a copy of a sandbox its own identity
	OpUplink  Op = "uplink" // create a network interface; its packets follow the response

	// Operations for processes whose descriptors the agent holds
	// (Exec.Carried).
	OpOutput   Op = "output" // receive the output and messages of a process, and send messages to it
	OpInput    Op = "input"  // send standard input to a process, as Stdin frames
	OpReattach Op = "adopt"  // hold an existing process
	OpDetach   Op = "keep"   // set whether a process keeps running without a holder
	OpPark     Op = "park"   // replace the descriptors of a donated interpreter by descriptors that the agent holds

	// Operations for an agent without a supervisor on the host.
	OpMain     Op = "main"  // run the main program, whose exit ends the sandbox
	OpWaitMain Op = "over"  // return the Exit of a lingering main program, once it has ended
	OpLease    Op = "lease" // set the remaining lease of the sandbox
)

// Call is the first frame of a connection, and the only request on it.
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
	// ID is the id of the exec for OpOutput, OpInput, OpReattach and OpPark.
	ID    string `json:",omitempty"`
	Keep  *Keep  `json:",omitempty"`
	Lease *Lease `json:",omitempty"`
	Renew *Renew `json:",omitempty"`
}

// Renew sets the host name of a sandbox that was restored as a copy of another one,
// and writes Generation to GenerationFile.
type Renew struct {
	Name string
	// Generation differs between all copies of a sandbox, and cannot be guessed.
	Generation string
}

// GenerationFile is a file that only copies of sandboxes have. Its content differs in each copy: a
// program with its own random generator reseeds the generator when the content changes. The file
// does not exist in other sandboxes.
const GenerationFile = "/run/brig/generation"

// Exec starts a process. The process is killed only by a Kill or a timeout, not by the loss of the
// connection.
type Exec struct {
	ID    string
	Argv  []string `json:",omitempty"`
	Shell string   `json:",omitempty"` // a script for the image's shell, as an alternative to Argv
	Env   []string // the whole environment, as K=V
	Dir   string
	UID   uint32
	GID   uint32
	// Processes and OpenFiles are the process's resource limits. 0 keeps the
	// agent's own limits.
	Processes uint64
	OpenFiles uint64
	// Keep is the number of bytes of each stream that the agent retains.
	Keep int
	// TimeoutMS is the agent's own timeout, which is longer than the host's. It
	// applies when no host is connected. 0 means no timeout.
	TimeoutMS int64
	// Result means that the process has descriptor 3 for results.
	Result bool
	// Donated means that the host passes the process's descriptors 0 to 3, with
	// one more byte, after the call. Their data does not pass through the
	// agent.
	Donated bool `json:",omitempty"`
	// Carried means that the agent creates these descriptors and holds the
	// other ends. The data is transferred over separate calls.
	Carried bool `json:",omitempty"`
	// Plain means that a donated or carried process has no descriptor 3.
	Plain bool `json:",omitempty"`
	// Lingers means that the sandbox does not end with this main program.
	Lingers bool `json:",omitempty"`
	// Terminal makes the standard streams of a donated or carried process a
	// terminal. The agent copies the data between the terminal and the
	// descriptors 0 and 1.
	Terminal *Terminal `json:",omitempty"`
}

// Terminal is the size of a terminal in characters.
type Terminal struct{ Columns, Rows uint16 }

// Resize changes the size of an exec's terminal.
type Resize struct {
	ID string
	Terminal
}

// Started describes a process that has started.
type Started struct{ PID int }

// Parking is the agent's first response to OpPark. The host sends the interpreter the request
// "park" with the directory. The interpreter opens the pipes below, writes one line to
// PipeMessages, replaces its descriptors, and writes a second line. After the first line the agent
// holds the process.
type Parking struct{ Dir string }

// Names of the pipes in the directory of a Parking.
const (
	PipeOrders   = "orders"
	PipeMessages = "messages"
	PipeStdout   = "stdout"
	PipeStderr   = "stderr"
)

// AgentFile, as the first word of an Exec's Argv, represents the agent's own
// program.
const AgentFile = "/proc/1/exe"

// Donated is the number of descriptors of a donated Exec.
const Donated = 4

// Kill ends the process trees of execs. It is a separate call, because the exec's connection may be
// full of unread input.
//
// The call succeeds when all processes of the trees have ended.
type Kill struct {
	ID   string
	More []string `json:",omitempty"` // further executions to kill
}

// Signal sends a signal to an exec's first process and its process group. It
// succeeds even if the process has ended.
type Signal struct {
	ID     string
	Number int
}

// Keep sets whether a carried process keeps its descriptors when no call holds it.
type Keep struct {
	ID string
	On bool
}

// Lease sets the remaining lease of the sandbox. Own means that the sandbox no
// longer ends with the sessions of its creator.
type Lease struct {
	MS  int64
	Own bool `json:",omitempty"`
}

// Messages on an agent's control socket begin with one of these bytes. A number
// follows ControlRelease and ControlCheck, and the response repeats it.
const (
	ControlConnect byte = 0 // passes a descriptor: the connection of a call
	ControlRelease byte = 1 // answered with a Release; if it has no holders, the agent closes all descriptors of the host
	ControlCheck   byte = 2 // answered with a Release, without further effect
)

// MaxControl is the maximum length of a message to the agent, in bytes.
const MaxControl = 5

// EncodeControlRequest returns the message that requests a Release from the agent. op is
// ControlRelease or ControlCheck.
func EncodeControlRequest(op byte, number uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{op}, number)
}

// ParseControlRequest parses a message of EncodeControlRequest. It returns false if
// b is another message.
func ParseControlRequest(b []byte) (op byte, number uint32, ok bool) {
	if len(b) != MaxControl || b[0] != ControlRelease && b[0] != ControlCheck {
		return 0, 0, false
	}
	return b[0], binary.BigEndian.Uint32(b[1:]), true
}

// MaxHolders is the maximum number of holders in a Release. MaxRelease is the
// maximum length of a Release, in bytes.
const (
	MaxHolders = 16
	MaxRelease = 16 << 10
)

// Release is the response to ControlCheck and ControlRelease. If it has no
// holders, the sandbox can be saved.
type Release struct {
	Number  uint32 // of the request
	Holders []Holder
}

// Holder is a process that prevents a save.
type Holder struct {
	PID          int
	Name, Reason string
}

// Exit codes of an agent that ends its sandbox.
const (
	ExitLease  = 120 // the lease has expired
	ExitTether = 121 // the creator has disconnected
)

// First arguments of the agent's program. With ServeWord, it is the init of a sandbox and accepts
// sessions. With RelayWord, it relays one session between its standard streams and that init.
// ServeWord is followed by the lifetime of the sandbox in milliseconds. TetherWord follows if the
// sandbox ends with its sessions, and UplinkWord if the agent reserves the device of an Uplink for
// itself.
const (
	ServeWord  = "serve"
	RelayWord  = "relay"
	TetherWord = "tethered"
	UplinkWord = "uplink"
)

// AgentID is the user id and the group id of an agent in a sandbox. The agent
// trusts processes of that user, so programs must not run as it.
const AgentID = 64999

// ParseAccount parses the IDs of an account, "UID:GID". It rejects root, which has a name, and the
// IDs of the agent.
func ParseAccount(s string) (uid, gid uint32, ok bool) {
	user, group, ok := strings.Cut(s, ":")
	n, err := strconv.ParseUint(user, 10, 16)
	m, err2 := strconv.ParseUint(group, 10, 16)
	if !ok || err != nil || err2 != nil || n == 0 || !IsAccountID(int(n)) || !IsAccountID(int(m)) {
		return 0, 0, false
	}
	return uint32(n), uint32(m), true
}

// IsAccountID reports whether a program may have the user ID or group ID.
func IsAccountID(id int) bool { return id >= 0 && id < 1<<16 && id != AgentID }

// SessionSocket is the abstract socket on which an agent accepts sessions. Each
// session is a Mux with a process of the agent's own user.
const SessionSocket = "@brig-agent"

// Exit describes how a process ended.
type Exit struct {
	Code     int // exit code if it exited
	Signal   int // the signal that ended the process, or 0 if it exited
	TimedOut bool
}

// Status returns the exit code for callers.
func (e Exit) Status() int {
	switch {
	case e.TimedOut && e.Signal == int(syscall.SIGKILL):
		return 124
	case e.Signal != 0:
		return 128 + e.Signal
	default:
		return e.Code
	}
}

// Error is the reason why a call failed. Kind is "not_found", "invalid", "exhausted" (a limit was
// reached), "unimplemented", "refused" (no process listens), "exists", "loop" (of symbolic links),
// "excess" (more entries than a response may have), "gone" (the watched directory) or "internal".
// Field is the invalid part of the call: "command", "cwd", "files" or "path".
type Error struct {
	Kind    string
	Field   string `json:",omitempty"`
	Message string
}

// Execution is an execution that the agent has retained.
type Execution struct {
	ID        string
	Argv      []string
	Shell     string
	StartedMS int64 // Unix time
	EndedMS   int64 // 0 while it runs
	Exit      *Exit // nil while it runs
	Draining  bool  // it has an exit, and its output is not complete yet
	Stdout    Output
	Stderr    Output
}

// Output is a stream's head and tail, and its total number of bytes.
type Output struct {
	Head, Tail []byte
	Total      int64
}

// Put writes the files that follow to paths below Dir.
type Put struct {
	Dir string
	UID uint32
	GID uint32
}

// File is the header of a file, whose content is in the next Size bytes of
// FileData.
type File struct {
	Path string
	Mode uint32
	Size int64
}

// Collect returns the regular files directly in Dir whose names end in one of
// Extensions, at most Count of them and Size bytes each.
type Collect struct {
	Dir        string
	Extensions []string
	Count      int
	Size       int64
}

// Stop makes the agent end every process within GraceMS.
type Stop struct {
	GraceMS int64
}
