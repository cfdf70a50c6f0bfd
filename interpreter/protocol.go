package interpreter

import (
	"encoding/json"
	"strings"
)

// Request is a request to a driver.
type Request struct {
	Op string `json:"op"` // "warm", "ping", "ack", "chdir", "park", "renew", "cell", "step", "program"
	// Nonce is repeated in every response to the request. It is fresh for each request.
	Nonce string `json:"nonce,omitempty"`
	// Acks means that the host acknowledges numbered messages, and Ack is the number of a message
	// that the host has received. The driver waits for the acknowledgement, so that the output
	// before the message is not confused with later output.
	Acks bool `json:"acks,omitempty"`
	Ack  int  `json:"ack,omitempty"`
	// Code is the source of a cell, a step or a program.
	Code string `json:"code,omitempty"`
	// Uncounted means that the cell has the same number as the previous cell.
	Uncounted bool `json:"uncounted,omitempty"`
	// Env is set during a cell, and the previous values are restored after it.
	// For a program it remains set.
	Env map[string]string `json:"env,omitempty"`
	// Imports are the modules that "warm" imports.
	Imports []string `json:"imports,omitempty"`
	// Dir is the working directory for the code, if any. For "park" it is the
	// directory of the new pipes.
	Dir string `json:"cwd,omitempty"`
	// Arguments is a JSON object that is passed to a program's main function, or nil.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Artifacts makes the driver create the directory artifacts/ before a
	// program starts, and remove it if it stays empty.
	Artifacts bool `json:"artifacts,omitempty"`
	// Limits are resource limits that a program sets before it runs: "nproc"
	// and "nofile".
	Limits map[string]uint64 `json:"limits,omitempty"`
	// State is the state after the earlier steps, and Count is their number. A step is a cell
	// that runs in a new driver, without the earlier cells.
	State json.RawMessage `json:"state,omitempty"`
	Count int             `json:"count,omitempty"`
	// Packages are package directories for a step. Carried means that packages that this step
	// installs are available to the next step. Uncarried is the reason why the packages of the
	// earlier steps are missing.
	Packages  []string `json:"packages,omitempty"`
	Carried   bool     `json:"carried,omitempty"`
	Uncarried string   `json:"uncarried,omitempty"`
}

// Message is a message from a driver.
type Message struct {
	Type string `json:"type"` // "ready", "pong", "taken", "started", "display", "clear", "result", "error", "installed", "violation", "end"
	// Nonce is the nonce of the request. It is empty for ready.
	Nonce string `json:"nonce,omitempty"`

	// Of display: its number, if the driver waits for an acknowledgement.
	Ack int `json:"ack,omitempty"`

	// Of ready: the interpreter's version and its flavor ("cpython", "ipython",
	// "node", "bash", "jupyter"), and whether the messages have nonces. Drivers of
	// earlier versions put a nonce only into pong.
	Version string `json:"version,omitempty"`
	Flavor  string `json:"flavor,omitempty"`
	Nonces  bool   `json:"nonces,omitempty"`

	// Of started: the number of cells so far, including this one.
	Count int `json:"count,omitempty"`

	// Of display and result: the representations of a value, by MIME type. Text types and SVG are
	// strings, images and PDF are base64, JSON types are JSON values.
	Data map[string]json.RawMessage `json:"data,omitempty"`
	// Metadata describes the representations, for example the size of an image. DisplayID is the
	// ID of a display. If Update is set, the value replaces the earlier values with this ID.
	Metadata  map[string]json.RawMessage `json:"metadata,omitempty"`
	DisplayID string                     `json:"display_id,omitempty"`
	Update    bool                       `json:"update,omitempty"`

	// Of clear: whether to wait for the next value before the output is cleared.
	Wait bool `json:"wait,omitempty"`

	// Of error. Of violation, Name is ViolationLost if a request was lost.
	Name      string `json:"name,omitempty"`
	Value     string `json:"value,omitempty"`
	Traceback string `json:"traceback,omitempty"`

	// Of installed: the requirements that a step passed to pip.
	Packages []string `json:"packages,omitempty"`

	// Of file: the path of the program's source file, which is written when the program can use
	// it.
	Path string `json:"path,omitempty"`

	// Of a program's end: its exit code, the number of the signal that ended it, the return value
	// of main, the exception that ended the program, whether artifacts/ contains files, and
	// whether the driver closes its output now.
	Code      int             `json:"code,omitempty"`
	Signal    int             `json:"signal,omitempty"`
	Returned  json.RawMessage `json:"returned,omitempty"`
	Failure   *Failure        `json:"failure,omitempty"`
	Artifacts bool            `json:"artifacts,omitempty"`
	Closed    bool            `json:"closed,omitempty"`

	// Of a step's end: the state for the next step.
	State json.RawMessage `json:"state,omitempty"`
}

// maxParts bounds the members and elements at the two outer levels of a message. Decoding creates
// an object for each of them, which needs fifty times the memory of its text. Deeper levels are
// not decoded. Drivers send at most a hundred parts.
const maxParts = 4096

// maxText is the maximum size of each text of an exception in bytes, because the host keeps
// exceptions in memory.
const maxText = 256 << 10

// decodeMessage decodes a line. For a line that is not a valid message, it returns a Message
// without a type.
func decodeMessage(line []byte) *Message {
	m := new(Message)
	if len(line) > maxParts && countParts(line) > maxParts || json.Unmarshal(line, m) != nil {
		return new(Message)
	}
	texts := []*string{&m.Name, &m.Value, &m.Traceback}
	if f := m.Failure; f != nil {
		texts = append(texts, &f.Name, &f.Message, &f.Traceback)
	}
	for _, t := range texts {
		*t = clip(*t)
	}
	return m
}

// countParts counts the members and elements at the two outer levels of a JSON document, and stops
// just above maxParts. It does not count inside values that Message keeps as text. It does not
// allocate, and accepts invalid JSON.
func countParts(doc []byte) (n int) {
	depth, quoted, keepsText := 0, false, false
	var begin int
	var name []byte // the last string at the outer level
	for i := 0; i < len(doc) && n <= maxParts; i++ {
		switch c := doc[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			if quoted = !quoted; quoted {
				begin = i + 1
			} else if depth == 1 {
				name = doc[begin:i]
			}
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth == 2 {
				keepsText = string(name) == "returned" || string(name) == "state"
			}
		case c == '}' || c == ']':
			depth--
		case c == ',' && (depth < 2 || depth == 2 && !keepsText):
			n++
		}
	}
	return n
}

// clip shortens a text to maxText bytes. The result does not share memory with a longer text.
func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	const mark = "\n[...]\n"
	head := (maxText - len(mark)) / 2
	return strings.ToValidUTF8(text[:head], "") + mark + strings.ToValidUTF8(text[len(text)-head:], "")
}

// Failure is the exception that ended a program.
type Failure struct {
	Name      string `json:"name"`
	Message   string `json:"message"`
	Traceback string `json:"traceback"`
}

// Brig's own MIME types: the rows of a data frame, and the data of a chart.
const (
	TypeFrame = "application/vnd.brig.frame+json"
	TypeChart = "application/vnd.brig.chart+json"
)
