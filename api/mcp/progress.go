package mcp

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

const (
	// tellEvery is how often a client is told what is new; quietEvery is how
	// often when nothing is, so that it knows that the call goes on.
	tellEvery  = 250 * time.Millisecond
	quietEvery = 5 * time.Second
	// mostTold bounds what one notification carries of the output; what came
	// before that is in the result.
	mostTold = 4 * brig.KiB
)

// progress tells a client how its call is getting on, if it wants to know. It
// is a writer for what a program says. A client that is slow to listen slows
// nothing but what it is told.
type progress struct {
	mu   sync.Mutex // guards the fields below
	text []byte
	more bool
}

// follow begins to tell, until stop is called. It is nil for a client that
// does not want to know.
func follow(ctx context.Context, req *mcp.CallToolRequest) (p *progress, stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil, func() {}
	}
	p = &progress{}
	begun, done, over := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(tellEvery)
		defer tick.Stop()
		for last := begun; ; {
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			text, new := p.take()
			if !new && time.Since(last) < quietEvery {
				continue
			}
			last = time.Now()
			// Time is what is known to go forward. A client that cannot be
			// told will not be answered either.
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: last.Sub(begun).Seconds(), Message: text,
			})
		}
	}()
	return p, func() { close(done); <-over }
}

// Write implements io.Writer.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.more = true
	p.text = append(p.text, b...)
	if cut := len(p.text) - mostTold; cut > 0 {
		p.text = append(p.text[:0], p.text[cut:]...)
	}
	return len(b), nil
}

// step tells of a step of long work.
func (p *progress) step(s brig.Progress) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.more = true
	p.text = fmt.Appendf(p.text[:0], "%s: %d", s.Step, s.Done)
	if s.Total > 0 {
		p.text = fmt.Appendf(p.text, " of %d", s.Total)
	}
}

// take returns what is new, and whether anything is.
func (p *progress) take() (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, more := strings.ToValidUTF8(string(p.text), "\uFFFD"), p.more
	p.text, p.more = p.text[:0], false
	return text, more
}
