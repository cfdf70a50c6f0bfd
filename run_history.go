package brig

import "time"

// RunSummary describes a finished run, without its output, value and artifacts.
type RunSummary struct {
	// Sandbox is the name of the removed sandbox. GetRun finds the outcome by it.
	Sandbox string
	// ID is the ID of that sandbox; empty if the program needed no sandbox.
	ID       ID
	Status   RunStatus // RunSuccess, RunError, RunTimeout or RunOutOfMemory
	ExitCode int
	Signal   string
	Started  time.Time
	Duration time.Duration
	// Stdout and Stderr are the numbers of bytes that the program wrote.
	Stdout, Stderr int64
	// Artifacts is the number of artifacts.
	Artifacts int
	// Error is the program's error, if any, without its traceback.
	Error    *ProgramError
	Image    string // as in Outcome
	Provider string // the provider that ran the program
	Pool     PoolUse
}

// RunOptions selects runs.
type RunOptions struct {
	// Statuses selects only runs with one of these statuses; empty selects all.
	Statuses []RunStatus
	// Limit is the page's size, 1 to 1000. Default: 100.
	Limit int
	// Cursor is the value of Next in the previous page.
	Cursor string
}

// RunPage is one page of a list of runs.
type RunPage struct {
	Runs []*RunSummary
	// Next is the cursor of the next page; empty on the last page.
	Next string
}

// OutcomeStatuses lists the statuses that an Outcome can have.
var OutcomeStatuses = []RunStatus{RunSuccess, RunError, RunTimeout, RunOutOfMemory}

// Status returns the status of the run.
func (o *Outcome) Status() RunStatus {
	switch {
	case o.OOMKilled:
		return RunOutOfMemory
	case o.TimedOut:
		return RunTimeout
	case o.ExitCode != 0 || o.Error != nil:
		return RunError
	}
	return RunSuccess
}

// maxSummaryMessage bounds the message of an error in a summary, in bytes.
const maxSummaryMessage = 1 << 10

// Summary returns the summary of the run.
func (o *Outcome) Summary() *RunSummary {
	s := &RunSummary{
		Sandbox: o.Sandbox, ID: o.ID, Status: o.Status(), ExitCode: o.ExitCode, Signal: o.Signal,
		Started: o.Started, Duration: o.Duration, Stdout: o.Stdout.Total, Stderr: o.Stderr.Total,
		Artifacts: len(o.Artifacts), Image: o.Image, Provider: o.Route.Provider, Pool: o.Pool,
	}
	if e := o.Error; e != nil {
		s.Error = &ProgramError{Code: e.Code, Name: Clip(e.Name, maxSummaryMessage), Message: Clip(e.Message, maxSummaryMessage), Hint: e.Hint}
	}
	return s
}
