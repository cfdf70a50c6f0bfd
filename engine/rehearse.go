package engine

import (
	"context"
	"io"
	"time"

	"github.com/brig-run/brig"
)

// rehearseTime bounds a rehearsal.
const rehearseTime = 5 * time.Second

// stays reports whether the last machine of a shelf was for a sandbox that
// stays, and so the next one may be.
func (p *pool) stays(s *shelf) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.stays
}

// rehearse has a machine's shell do nothing, so that the first command of
// whoever claims it finds in memory what commands need. Machines for one-shots
// are spared that: their interpreter has rehearsed already. What comes of it is
// of no interest, since an image need not have a shell.
func (p *pool) rehearse(ctx context.Context, w *waiting) {
	_, _ = w.in.Exec(ctx, newExecID(), brig.Command{Shell: ":", Timeout: rehearseTime}, brig.IO{Stdout: io.Discard, Stderr: io.Discard})
}
