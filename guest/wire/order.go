package wire

// KeeperVersion is the version of what is said to a keeper.
const KeeperVersion = 1

// The words after the agent's program with which it keeps machines that are
// nothing but processes, carries connections to the keeper between its standard
// streams and the keeper's socket, and becomes the first process of one of
// these machines.
const (
	KeeperWord = "keeper"
	ReachWord  = "reach"
	PlaceWord  = "place"
)

// PlainWord is the word after the agent's program with which it is an init that
// has one account, its own, for all that it starts.
const PlainWord = "plain"

// Reached is what a process with ReachWord says when it has the keeper, after
// which its streams are a Mux.
const Reached = "brig-keeper\n"

// The frames between a host and a keeper.
const (
	TypeOrder Type = 40 // JSON Order, first on every connection
	TypeState Type = 41 // JSON State
)

// KeeperOp is what an Order asks for.
type KeeperOp string

// The orders that a keeper carries out.
const (
	// Make makes a machine; the answer is Watch's. Whoever asked says TypeOK to
	// the first State: one who goes away before has no machine. A machine that is
	// tethered ends with the connection.
	KeeperMake KeeperOp = "make"
	// Watch answers with a State, and with another one when the machine ends.
	KeeperWatch KeeperOp = "watch"
	// Agent makes the connection one to the machine's agent. It is only
	// answered if it cannot.
	KeeperAgent KeeperOp = "agent"
	KeeperLease KeeperOp = "lease" // move the lease, and with Own cut the tether
	KeeperStop  KeeperOp = "stop"
	KeeperBegin KeeperOp = "begin" // start the main program that was held
	// Over answers when a main program that lingers has ended.
	KeeperOver  KeeperOp = "over"
	KeeperErase KeeperOp = "erase" // end it, and leave nothing of it
	KeeperList  KeeperOp = "list"  // answer with the State of every machine
	KeeperLog   KeeperOp = "log"   // answer with the log, in FileData frames
	KeeperSay   KeeperOp = "say"   // append to the log
	KeeperQuit  KeeperOp = "quit"  // end, if there are no machines
)

// ProgramsDir is where programs are that stand in for others of their names.
const ProgramsDir = "/run/brig/bin"

// Order is what a host asks of a keeper. Times are lengths: nobody's clock but
// the keeper's own counts for what it does.
type Order struct {
	Version int
	Op      KeeperOp
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

// Make asks for a machine.
type Make struct {
	Hostname string
	LeaseMS  int64
	Tethered bool
	// Main is the program whose end is the machine's.
	Main *Exec `json:",omitempty"`
	// Held says that it begins when it is told to. If it lingers then, its end
	// is not the machine's.
	Held bool `json:",omitempty"`
	// Bare machines have the files of where the keeper is, but for what is
	// their own by name; others have those as the lower layer of their own.
	Bare bool
	// Programs are put in the way of those that would be found by their names.
	Programs map[string]string `json:",omitempty"`
}

// State is what a keeper knows of a machine.
type State struct {
	ID    string
	Notes []string `json:",omitempty"`
	// Plain machines have one account, and their programs no others.
	Plain bool `json:",omitempty"`
	// Tethered machines are somebody's who is there.
	Tethered bool    `json:",omitempty"`
	Ended    *Ending `json:",omitempty"`
	// LeaseMS is how long its lease lasts still.
	LeaseMS int64 `json:",omitempty"`
	// NowMS is the keeper's own time, in Unix time.
	NowMS int64
}

// Ending is how a machine ended.
type Ending struct {
	Code   int
	Reason string
	AtMS   int64 // Unix time
}
