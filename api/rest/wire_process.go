package rest

import (
	"math"
	"unicode/utf8"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

func toProcess(in wire.ProcessRequest) (brig.ProcessSpec, error) {
	timeout, err := toDuration("timeout_ms", in.TimeoutMS)
	if err != nil {
		return brig.ProcessSpec{}, err
	}
	spec := brig.ProcessSpec{
		Command: brig.Command{Argv: in.Command, Shell: in.Shell, Env: in.Env, Dir: in.Cwd, User: in.User, Timeout: timeout},
		NoInput: in.NoInput, Tag: in.Tag,
	}
	if in.Terminal != nil {
		size, err := toTerminal("terminal.", *in.Terminal)
		if err != nil {
			return spec, err
		}
		spec.Terminal = &size
	}
	return spec, nil
}

// toTerminal reads a size; the fields' names begin with prefix.
func toTerminal(prefix string, t wire.Terminal) (brig.Terminal, error) {
	for _, side := range []struct {
		field string
		n     int
	}{{"columns", t.Columns}, {"rows", t.Rows}} {
		if side.n < 0 || side.n > math.MaxUint16 {
			return brig.Terminal{}, brig.InvalidField(prefix+side.field, "is out of range").WithHint("give 1 to %d", math.MaxUint16)
		}
	}
	return brig.Terminal{Columns: uint16(t.Columns), Rows: uint16(t.Rows)}, nil
}

func fromProcess(p *brig.ProcessInfo) wire.Process {
	c := p.Spec.Command
	out := wire.Process{
		PID: p.PID, Started: p.Started, Written: p.Written, Running: p.Result == nil,
		ProcessRequest: wire.ProcessRequest{
			Command: c.Argv, Shell: c.Shell, Env: c.Env, Cwd: c.Dir, User: c.User, TimeoutMS: c.Timeout.Milliseconds(),
			NoInput: p.Spec.NoInput, Tag: p.Spec.Tag,
		},
	}
	if t := p.Spec.Terminal; t != nil {
		out.Terminal = &wire.Terminal{Columns: int(t.Columns), Rows: int(t.Rows)}
	}
	if p.Result != nil {
		r := fromResult(p.Result)
		out.Result = &r
	}
	return out
}

func fromProcesses(list []*brig.ProcessInfo) wire.Processes {
	out := wire.Processes{Processes: []wire.Process{}}
	for _, p := range list {
		out.Processes = append(out.Processes, fromProcess(p))
	}
	return out
}

// fromPart writes a part of a process's output. Offsets are exact, so that
// nothing of a character is held back: cut ones are sent as bytes.
func fromPart(e brig.ProcessEvent) wire.Chunk {
	if utf8.Valid(e.Output) {
		return wire.Chunk{Data: string(e.Output), Offset: &e.Offset}
	}
	return wire.Chunk{DataB64: e.Output, Offset: &e.Offset}
}
