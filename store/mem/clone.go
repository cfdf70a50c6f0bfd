package mem

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// The results of the clone functions share no memory with the original. The functions
// distinguish nil from empty values and convert every time to UTC. storetest fills every
// existing field, so a new field that is not cloned here fails a test.

func cloneResult(r brig.Result) brig.Result {
	r.Stdout, r.Stderr = cloneOutput(r.Stdout), cloneOutput(r.Stderr)
	r.Started = r.Started.UTC()
	return r
}

func cloneOutput(o brig.Output) brig.Output {
	o.Head, o.Tail = bytes.Clone(o.Head), bytes.Clone(o.Tail)
	return o
}

func cloneExec(x *brig.Execution) *brig.Execution {
	c := *x
	c.Command = contract.CloneCommand(x.Command)
	c.Result = cloneResult(x.Result)
	return &c
}

func cloneOutcome(o *brig.Outcome) *brig.Outcome {
	c := *o
	c.Result = cloneResult(o.Result)
	c.Value = bytes.Clone(o.Value)
	c.Artifacts = slices.Clone(o.Artifacts)
	for i := range c.Artifacts {
		c.Artifacts[i].Data = bytes.Clone(c.Artifacts[i].Data)
	}
	c.Skipped, c.Route.Attempts = slices.Clone(o.Skipped), slices.Clone(o.Route.Attempts)
	c.Error = clonePointer(o.Error)
	if c.Workspace = clonePointer(o.Workspace); c.Workspace != nil {
		w := c.Workspace
		w.Changes, w.Captured, w.Skipped, w.Error = slices.Clone(w.Changes), slices.Clone(w.Captured), slices.Clone(w.Skipped), clonePointer(w.Error)
		if w.Version = clonePointer(w.Version); w.Version != nil {
			w.Version.Created = w.Version.Created.UTC()
		}
	}
	if c.Step = clonePointer(o.Step); c.Step != nil {
		st := c.Step
		st.State, st.Outputs, st.Packages = bytes.Clone(st.State), slices.Clone(st.Outputs), slices.Clone(st.Packages)
		for i, out := range st.Outputs {
			st.Outputs[i].Data, st.Outputs[i].Metadata = cloneDocuments(out.Data), cloneDocuments(out.Metadata)
		}
	}
	return &c
}

// cloneDocuments returns a copy of a map of JSON documents.
func cloneDocuments(docs map[string]json.RawMessage) map[string]json.RawMessage {
	out := maps.Clone(docs)
	for name, b := range out {
		out[name] = bytes.Clone(b)
	}
	return out
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
