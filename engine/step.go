package engine

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
	"github.com/brig-run/brig/tool"
)

// opStep is the order of a step to a driver.
const opStep = "step"

// step makes the order of a job that is a step.
func (e *Engine) step(j *job, p brig.Program) error {
	switch {
	case p.Language != brig.Python:
		return brig.InvalidField("step", "only Python has steps").WithHint("leave out step, or use a context, which keeps its variables")
	case len(p.Arguments) > 0:
		return brig.InvalidField("arguments", "a step takes no arguments object").WithHint("put what it needs into the code")
	case p.Step.Count < 0:
		return brig.InvalidField("step.count", "it is negative").WithHint("give how many steps there were before")
	}
	if err := tool.CheckPython("step.packages", p.Step.Packages); err != nil {
		return err
	}
	j.packages = p.Step.Packages
	state := bytes.TrimSpace(p.Step.State)
	if len(state) > 0 {
		if err := checkState(state); err != nil {
			return err
		}
	}
	j.order.Op, j.order.State, j.order.Count, j.order.Carried = opStep, state, p.Step.Count, e.Options.Tools.Layers != nil
	return nil
}

// checkState refuses what no step has left: too much, or something that is no
// document. What is in it only the next sandbox finds out.
func checkState(state []byte) error {
	if len(state) > brig.MaxState {
		return brig.InvalidField("step.state", "it has %d bytes", len(state)).WithHint("at most %s are carried; put data into a workspace", brig.FormatBytes(brig.MaxState))
	}
	if state[0] != '{' || !json.Valid(state) || brig.JSONDepth(state) > brig.MaxStateDepth {
		return brig.InvalidField("step.state", "it is not what a step has left").WithHint("give the state of the step before as it is, or leave it out")
	}
	return nil
}

// stepRun is what a driver has said of a step.
type stepRun struct {
	outputs []brig.Rich
	size    int
	failure *brig.ProgramError
	// packages are those that it has, and has installed of the ones that its code
	// asks for by name. What else its sandbox says is an intruder's.
	packages, asked []string
}

// message takes what the driver says before the end. Programs have nothing to
// say.
func (s *stepRun) message(m *interpreter.Message) {
	if s == nil {
		return
	}
	switch m.Type {
	case "installed":
		for _, r := range m.Packages[:min(len(m.Packages), tool.MaxPackages)] {
			if slices.Contains(s.asked, r) {
				s.packages = tool.Merge(s.packages, r)
			}
		}
	case "display", "result":
		rich, size := richOf(m)
		if fits(rich, len(s.outputs), s.size+size) {
			s.size += size
			s.outputs = append(s.outputs, rich)
		}
	case "error":
		if s.failure == nil {
			s.failure = &brig.ProgramError{Name: m.Name, Message: m.Value, Traceback: m.Traceback}
		}
	}
}

// richOf is a value that a driver has told, and its size.
func richOf(m *interpreter.Message) (rich brig.Rich, size int) {
	rich = brig.Rich{Data: m.Data, Main: m.Type == "result"}
	for k, v := range rich.Data {
		size += len(k) + len(v)
		rich.Data[k] = bytes.Clone(v)
	}
	return rich, size
}

// fits reports whether a value is within bounds, beside count others and with
// size bytes in all. Displays leave a place for the value of the last
// expression, which is what was asked for.
func fits(rich brig.Rich, count, size int) bool {
	most := brig.MaxOutputs
	if !rich.Main {
		most--
	}
	return count < most && size <= brig.MaxOutputSize
}

// outcome is what a step leaves. A state that the next one would refuse is
// none.
func (s *stepRun) outcome(end *interpreter.Message) *brig.StepOutcome {
	if s == nil {
		return nil
	}
	o := &brig.StepOutcome{Outputs: s.outputs, Packages: s.packages}
	if end == nil || len(end.State) == 0 {
		return o
	}
	if err := checkState(end.State); err != nil {
		if s.failure == nil {
			e := brig.AsError(err)
			s.failure = &brig.ProgramError{Code: e.Kind.Code(), Name: "StateLost", Message: "the step's state cannot be carried: " + e.Message, Hint: e.Hint}
		}
		return o
	}
	o.State = bytes.Clone(end.State)
	return o
}

// remembered is an outcome as it is kept: what a step leaves is its caller's.
func remembered(o *brig.Outcome) *brig.Outcome {
	if o.Step == nil {
		return o
	}
	kept := *o
	kept.Step = nil
	return &kept
}
