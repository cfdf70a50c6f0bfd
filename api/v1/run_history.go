package v1

import (
	"time"

	"github.com/brig-run/brig"
)

// RunSummary describes a finished run.
type RunSummary struct {
	Sandbox     string    `json:"sandbox" doc:"name of the removed sandbox; GET /v1/runs/{name} returns the whole result"`
	ID          string    `json:"id,omitempty" doc:"ID of the sandbox"`
	Status      string    `json:"status" doc:"how the program ended" enum:"success,error,timeout,out_of_memory"`
	ExitCode    int       `json:"exit_code"`
	Signal      string    `json:"signal,omitempty" doc:"signal that ended the program"`
	Started     time.Time `json:"started"`
	DurationMS  int64     `json:"duration_ms"`
	StdoutBytes int64     `json:"stdout_bytes" doc:"number of bytes that the program wrote"`
	StderrBytes int64     `json:"stderr_bytes" doc:"number of bytes that the program wrote"`
	Artifacts   int       `json:"artifacts" doc:"number of artifacts"`
	// Error has no traceback.
	Error    *ProgramError `json:"error,omitempty" doc:"the program's error, if any, without its traceback"`
	Image    string        `json:"image,omitempty" doc:"the image that was used, if the caller named an alias"`
	Provider string        `json:"provider,omitempty" doc:"the provider that ran it"`
	Pool     string        `json:"pool,omitempty" doc:"hit if a pooled sandbox was ready, otherwise miss"`
}

// Runs is a page of runs.
type Runs struct {
	Runs       []RunSummary `json:"runs" nullable:"false"`
	NextCursor string       `json:"next_cursor" doc:"cursor of the next page; empty on the last page"`
}

// FromRuns converts p to its wire type.
func FromRuns(p *brig.RunPage) Runs {
	out := Runs{Runs: []RunSummary{}, NextCursor: p.Next}
	for _, r := range p.Runs {
		out.Runs = append(out.Runs, RunSummary{
			Sandbox: r.Sandbox, ID: string(r.ID), Status: string(r.Status), ExitCode: r.ExitCode, Signal: r.Signal,
			Started: r.Started, DurationMS: FromDuration(r.Duration), StdoutBytes: r.Stdout, StderrBytes: r.Stderr,
			Artifacts: r.Artifacts, Error: fromProgramError(r.Error), Image: r.Image, Provider: r.Provider, Pool: string(r.Pool),
		})
	}
	return out
}

// Domain converts r to its domain type.
func (r Runs) Domain() *brig.RunPage {
	out := &brig.RunPage{Next: r.NextCursor}
	for _, s := range r.Runs {
		out.Runs = append(out.Runs, &brig.RunSummary{
			Sandbox: s.Sandbox, ID: brig.ID(s.ID), Status: brig.RunStatus(s.Status), ExitCode: s.ExitCode, Signal: s.Signal,
			Started: s.Started, Duration: ToDuration(s.DurationMS), Stdout: s.StdoutBytes, Stderr: s.StderrBytes,
			Artifacts: s.Artifacts, Error: s.Error.domain(), Image: s.Image, Provider: s.Provider, Pool: brig.PoolUse(s.Pool),
		})
	}
	return out
}
