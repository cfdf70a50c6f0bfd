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
	// notifyInterval is the interval of progress notifications. quietInterval
	// is the interval if there is no new output, so that the client knows that
	// the call is still running.
	notifyInterval = 250 * time.Millisecond
	quietInterval  = 5 * time.Second
	// maxNotification limits the output in one notification. The result contains the
	// earlier output.
	maxNotification = 4 * brig.KiB
)

// progress sends notifications about a call to the client if the client
// requested them. It is a writer for the output of a program. A slow client
// delays only its own notifications.
type progress struct {
	mu      sync.Mutex // guards the fields below
	text    []byte
	changed bool
}

// reportProgress sends notifications until stop is called. p is nil if the client did
// not request notifications.
func reportProgress(ctx context.Context, req *mcp.CallToolRequest) (p *progress, stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil, func() {}
	}
	p = &progress{}
	begun, done, over := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(notifyInterval)
		defer tick.Stop()
		for last := begun; ; {
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			text, new := p.takeText()
			if !new && time.Since(last) < quietInterval {
				continue
			}
			last = time.Now()
			// The elapsed time is used because it always increases. The error
			// is ignored, because a client that cannot receive the notification
			// cannot receive the response either.
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
	p.changed = true
	p.text = append(p.text, b...)
	if cut := len(p.text) - maxNotification; cut > 0 {
		p.text = append(p.text[:0], p.text[cut:]...)
	}
	return len(b), nil
}

// onStep reports a step of a long operation.
func (p *progress) onStep(s brig.Progress) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = true
	p.text = fmt.Appendf(p.text[:0], "%s: %d", s.Step, s.Done)
	if s.Total > 0 {
		p.text = fmt.Appendf(p.text, " of %d", s.Total)
	}
}

// takeText returns the new text and reports whether there was progress since
// the last call.
func (p *progress) takeText() (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, changed := strings.ToValidUTF8(string(p.text), "\uFFFD"), p.changed
	p.text, p.changed = p.text[:0], false
	return text, changed
}
