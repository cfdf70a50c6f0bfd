package v1

import (
	"github.com/brig-run/brig"
)

// Media types of the API.
const (
	JSON   = "application/json"
	NDJSON = "application/x-ndjson"
	SSE    = "text/event-stream"
	Tar    = "application/x-tar"
)

// Events of a stream. Each event is a JSON object whose "event" field contains
// its name. Its other fields are those of the type that is named in the comment
// after the constant. The last event is EventResult or EventError.
const (
	EventStarted     = "started"     // Started
	EventStdout      = "stdout"      // Chunk
	EventStderr      = "stderr"      // Chunk
	EventDescriptor3 = "descriptor3" // Chunk
	EventLog         = "log"         // Chunk
	EventProgress    = "progress"    // Progress
	EventPing        = "ping"        // no fields; shows that the connection is alive
	EventResult      = "result"      // the response that a request without streaming receives
	EventError       = "error"       // ErrorAnswer
)

// Event is the common part of all events.
type Event struct {
	Event string `json:"event"`
}

// Started reports that the process is starting.
type Started struct {
	Exec string `json:"exec"`
}

// Chunk is a piece of output: data, or data_b64 if the bytes are not UTF-8.
type Chunk struct {
	Data    string `json:"data,omitempty"`
	DataB64 []byte `json:"data_b64,omitzero"`
	Offset  *int64 `json:"offset,omitempty" doc:"offset of this chunk in the output of a detached process"`
}

// Bytes returns the output.
func (c Chunk) Bytes() []byte {
	if c.DataB64 != nil {
		return c.DataB64
	}
	return []byte(c.Data)
}

// Input is one line of a request whose body is application/x-ndjson, after
// the first line, which is the request itself.
type Input struct {
	Stdin      *string `json:"stdin,omitempty"`
	StdinB64   []byte  `json:"stdin_b64,omitzero"`
	CloseStdin bool    `json:"close_stdin,omitempty"`
}

// ErrorAnswer is the body of every error response.
type ErrorAnswer struct {
	Error Error `json:"error"`
}

// Error describes an error. Only Message and Hint are meant for people.
type Error struct {
	Code    string `json:"code" doc:"stable code of the error: see docs/reference/errors.md" example:"SB010"`
	Kind    string `json:"kind" doc:"the kind of the error" example:"invalid_argument"`
	Message string `json:"message" doc:"what went wrong"`
	Field   string `json:"field,omitempty" doc:"the invalid field of the request" example:"limits.memory"`
	Hint    string `json:"hint,omitempty" doc:"how to fix it"`
	// Fields lists all errors of a configuration.
	Fields []brig.FieldError `json:"fields,omitempty" doc:"all invalid fields, if there are several"`
}
