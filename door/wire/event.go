package wire

// Media types of the API.
const (
	JSON   = "application/json"
	NDJSON = "application/x-ndjson"
	SSE    = "text/event-stream"
	Tar    = "application/x-tar"
)

// The events of a stream. Each is a JSON object whose "event" says which; its
// other fields are those of the document named here. EventResult or
// EventError is the last.
const (
	EventStarted     = "started"     // Started
	EventStdout      = "stdout"      // Chunk
	EventStderr      = "stderr"      // Chunk
	EventDescriptor3 = "descriptor3" // Chunk
	EventProgress    = "progress"    // Progress
	EventPing        = "ping"        // nothing: shows that the connection lives
	EventResult      = "result"      // what the answer would be without streaming
	EventError       = "error"       // ErrorAnswer
)

// Event is what every event has.
type Event struct {
	Event string `json:"event"`
}

// Started says that the process is being started.
type Started struct {
	Exec string `json:"exec"`
}

// Chunk is a piece of output: data, or data_b64 when it is not UTF-8.
type Chunk struct {
	Data    string `json:"data,omitempty"`
	DataB64 []byte `json:"data_b64,omitzero"`
	Offset  *int64 `json:"offset,omitempty" doc:"of a process that nobody waits for: where in all of its output this begins"`
}

// Input is one line of a request whose body is application/x-ndjson, after
// the first line, which is the request itself.
type Input struct {
	Stdin      *string `json:"stdin,omitempty"`
	StdinB64   []byte  `json:"stdin_b64,omitzero"`
	CloseStdin bool    `json:"close_stdin,omitempty"`
}
