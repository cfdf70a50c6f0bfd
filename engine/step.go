package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
	"github.com/brig-run/brig/tool"
)

// opStep is the operation of a step's request.
const opStep = "step"

// setStep completes the request of a job that runs a step.
func (rs *runs) setStep(j *job, p brig.Program) error {
	switch {
	case p.Language != brig.Python:
		return brig.InvalidField("step", "only Python has steps").WithHint("leave out step, or use a context, which keeps its variables")
	case len(p.Arguments) > 0:
		return brig.InvalidField("arguments", "a step does not accept an arguments object").WithHint("put what it needs into the code")
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
	j.request.Op, j.request.State, j.request.Count, j.request.Carried = opStep, state, p.Step.Count, rs.Options.Tools.Layers != nil
	return nil
}

// checkState rejects a state that is too large or not a JSON object. The content of the state is
// checked only in the next sandbox.
func checkState(state []byte) error {
	if len(state) > brig.MaxState {
		return brig.InvalidField("step.state", "it has %d bytes", len(state)).WithHint("a state has at most %s; put data into a workspace", brig.FormatBytes(brig.MaxState))
	}
	if state[0] != '{' || !json.Valid(state) || brig.JSONDepth(state) > brig.MaxStateDepth {
		return brig.InvalidField("step.state", "it is not what a step has left").WithHint("give the state of the step before as it is, or leave it out")
	}
	return nil
}

// stepRun collects the driver's messages about a step.
type stepRun struct {
	outputs values
	failure *brig.ProgramError
	// packages lists the packages that the step started with, and the requested
	// packages that the driver has installed since. requested lists the
	// packages that the code imports. A driver message that names any other
	// package is forged, and is ignored.
	packages, requested []string
}

// handleMessage handles a message that the driver sends before the final message. If s is nil, the
// program is not a step, and the message is ignored.
func (s *stepRun) handleMessage(m *interpreter.Message) {
	if s == nil {
		return
	}
	switch m.Type {
	case "installed":
		for _, r := range m.Packages[:min(len(m.Packages), tool.MaxPackages)] {
			if slices.Contains(s.requested, r) {
				s.packages = tool.MergeRequirement(s.packages, r)
			}
		}
	case "display", "result":
		s.outputs.add(m)
	case "error":
		if s.failure == nil {
			s.failure = &brig.ProgramError{Name: m.Name, Message: m.Value, Traceback: m.Traceback}
		}
	}
}

// isWithinLimits reports whether a value is within the limits, given count other values and a total
// size of size bytes. One place is reserved for the main result, the value of the last expression.
func isWithinLimits(rich brig.Rich, count, size int) bool {
	limit := brig.MaxOutputs
	if !rich.Main {
		limit--
	}
	return count < limit && size <= brig.MaxOutputSize
}

// leftOutNote returns the line on standard error about n values that are not in a result.
func leftOutNote(n int) []byte {
	if n == 0 {
		return nil
	}
	return fmt.Appendf(nil, "brig: %d values are left out of the result, which has at most %d values and %s; save them to files\n",
		n, brig.MaxOutputs, brig.FormatBytes(brig.MaxOutputSize))
}

// outcome returns the outcome of a step. It omits a state that the next step
// would reject.
func (s *stepRun) outcome(end *interpreter.Message) *brig.StepOutcome {
	if s == nil {
		return nil
	}
	o := &brig.StepOutcome{Outputs: s.outputs.list, Packages: s.packages}
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

// withoutState returns an outcome for the store, without the step's state and
// outputs, which only the caller receives.
func withoutState(o *brig.Outcome) *brig.Outcome {
	if o.Step == nil {
		return o
	}
	kept := *o
	kept.Step = nil
	return &kept
}
