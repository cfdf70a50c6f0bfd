package wire

// ProbeWord is the word after AgentFile with which the agent's program looks
// around as the user who runs it, and writes a Posture to standard output. A
// word after it is a Look, as JSON.
const ProbeWord = "probe"

// Look says what a probe is to try beyond looking.
type Look struct {
	// Dial are addresses with ports to connect to over TCP; Resolve are names.
	Dial, Resolve []string `json:",omitempty"`
}

// Posture is what a program inside a sandbox finds.
type Posture struct {
	UID    int
	Kernel string
	// Capabilities is the union of all the sets that the program has, the
	// bounding set included.
	Capabilities uint64
	NoNewPrivs   bool
	// Writable are the mounts of the host's files that may be written to.
	Writable []string `json:",omitempty"`
	// Disk is the size of the root file system, in bytes.
	Disk int64
	// Processes and OpenFiles are the hard limits.
	Processes, OpenFiles uint64
	// Interfaces are the network interfaces beside the loopback.
	Interfaces []string `json:",omitempty"`
	// Reached and Resolved are those of Look that there was an answer from;
	// Failed says why there was none from the others.
	Reached, Resolved []string          `json:",omitempty"`
	Failed            map[string]string `json:",omitempty"`
}
