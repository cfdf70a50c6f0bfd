package wire

import "time"

// Octets is the media type of bytes as they are.
const Octets = "application/octet-stream"

// ProcessRequest asks for a process that nobody waits for: command or shell.
type ProcessRequest struct {
	Command   []string          `json:"command,omitempty" doc:"the program and its arguments, never parsed by a shell"`
	Shell     string            `json:"shell,omitempty" doc:"a script for the image's shell"`
	Env       map[string]string `json:"env,omitempty" doc:"added to the sandbox's environment, and wins over it"`
	Cwd       string            `json:"cwd,omitempty" doc:"working directory; default /workspace"`
	User      string            `json:"user,omitempty" doc:"user (the default) or root"`
	TimeoutMS int64             `json:"timeout_ms,omitempty" doc:"wall time after which the whole process tree is killed; default none"`
	Terminal  *Terminal         `json:"terminal,omitempty" doc:"gives it a terminal of this size; its streams are pipes otherwise"`
	NoInput   bool              `json:"no_input,omitempty" doc:"gives it an empty standard input; it stays open otherwise"`
	Tag       string            `json:"tag,omitempty" doc:"the caller's own name for it"`
}

// Terminal is the size of one, in characters.
type Terminal struct {
	Columns int `json:"columns" doc:"1 to 65535"`
	Rows    int `json:"rows" doc:"1 to 65535"`
}

// Process is one process that was started, with what was asked for.
type Process struct {
	PID int `json:"pid" doc:"its id inside the sandbox"`
	ProcessRequest
	Started time.Time `json:"started"`
	Written int64     `json:"written" doc:"how many bytes of output there have been"`
	Running bool      `json:"running"`
	Result  *Result   `json:"result,omitempty" doc:"how it ended; its output is fetched apart"`
}

// Processes is a list of processes, oldest first.
type Processes struct {
	Processes []Process `json:"processes" nullable:"false"`
}

// ProcessInput is input for a process: data or data_b64.
type ProcessInput struct {
	Data    *string `json:"data,omitempty" doc:"text"`
	DataB64 []byte  `json:"data_b64,omitzero" doc:"bytes, in base64"`
}

// SignalRequest names a signal for a process and its group.
type SignalRequest struct {
	Signal string `json:"signal" doc:"for example SIGTERM; SIGKILL ends everything that the process started"`
}
