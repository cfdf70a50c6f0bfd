package engine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

const (
	// followInterval is the interval between reads at the end of a followed log. A read at the end
	// of a file is cheap.
	followInterval = 250 * time.Millisecond
	// If a provider can read a log only as a whole, the log is read again after rereadFactor times
	// the duration of the last read, but not before rereadInterval.
	rereadInterval = time.Second
	rereadFactor   = 10
	// rereadBuffer is the approximate number of bytes of such a log that a follower keeps in
	// memory.
	rereadBuffer = 64 << 10
	// maxTimestampSize is the maximum length of a line's timestamp, in bytes.
	maxTimestampSize = 64
)

// logSource is a log that can be read further after io.EOF. complete marks the log as final, and
// move continues the log in another instance of the sandbox.
type logSource interface {
	io.ReadCloser
	complete()
	move(in brig.Instance)
}

// followedLog is the log of a sandbox that a caller follows. It ends with the sandbox. Like a
// session, it counts as use of the sandbox, but does not prevent a pause: the stream continues when
// another call resumes the sandbox.
type followedLog struct {
	l       *lifecycle
	rec     *brig.Record
	in      brig.Instance // the latest instance; only Read uses this field
	ctx     context.Context
	cancel  context.CancelFunc
	release func()

	mu        sync.Mutex // guards the fields below
	source    logSource
	readAhead []byte // output that was read ahead from source
	ended     bool   // the log is complete
}

// followLog returns the log of a sandbox and its later output, until the sandbox ends or the reader
// is closed. If o.Tail is not zero, the reader starts with the last o.Tail lines.
func (l *lifecycle) followLog(ctx context.Context, v *call, in brig.Instance, o brig.LogOptions) (_ io.ReadCloser, err error) {
	release, err := l.streams.reserve(v)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	source, err := openLogSource(ctx, in, o.Times)
	if err != nil {
		return nil, err
	}
	f := &followedLog{l: l, rec: v.rec, in: in, source: source, release: release}
	if o.Tail > 0 {
		if f.readAhead, err = skipToTail(ctx, in, source, o); err != nil {
			return nil, errors.Join(fmt.Errorf("read log: %w", err), source.Close())
		}
	}
	f.ctx, f.cancel = context.WithCancel(ctx)
	if v.rec.State.IsActive() {
		held := l.hold(v.rec)
		f.release = func() { held(); release() }
	} else {
		f.ended = true
		source.complete()
	}
	return f, nil
}

// skipToTail skips all but the last o.Tail lines of a log, and returns the part of these lines that
// is already buffered. It counts the lines with a second reader, so that it need not buffer them.
func skipToTail(ctx context.Context, in brig.Instance, source logSource, o brig.LogOptions) ([]byte, error) {
	whole, err := openLogSource(ctx, in, o.Times)
	if err != nil {
		return nil, err
	}
	lines, _, err := measureLog(ctx, whole)
	if err = errors.Join(err, whole.Close()); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(source, 64<<10)
	if err := skipLines(ctx, r, lines-int64(o.Tail)); err != nil {
		return nil, err
	}
	return r.Peek(r.Buffered())
}

// openLogSource returns the log of an instance.
func openLogSource(ctx context.Context, in brig.Instance, timed bool) (logSource, error) {
	if follower, ok := in.(brig.LogFollower); ok {
		r, err := follower.FollowLog(ctx, timed)
		if err != nil {
			return nil, err
		}
		return growingLog{r}, nil
	}
	return &rereadLog{ctx: ctx, in: in, timed: timed}, nil
}

// Read implements io.Reader. It waits for output.
func (f *followedLog) Read(p []byte) (int, error) {
	for {
		n, ended, err := f.readOnce(p)
		if n > 0 || !errors.Is(err, io.EOF) || ended {
			return n, err
		}
		if err := f.wait(); err != nil {
			return 0, err
		}
	}
}

func (f *followedLog) readOnce(p []byte) (n int, ended bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil {
		return 0, false, context.Cause(f.ctx)
	}
	if len(f.readAhead) > 0 {
		n = copy(p, f.readAhead)
		f.readAhead = f.readAhead[n:]
		return n, false, nil
	}
	n, err = f.source.Read(p)
	return n, f.ended, err
}

// wait waits until there may be more output, or until the sandbox ends.
func (f *followedLog) wait() error {
	var done <-chan struct{}
	if !hasEnded(f.in) {
		done = f.in.Done()
	}
	timer := time.NewTimer(followInterval)
	defer timer.Stop()
	select {
	case <-f.ctx.Done():
		return context.Cause(f.ctx)
	case <-f.l.ctx.Done():
		return brig.Errorf(brig.Unavailable, "the server is ending").WithHint("follow the log again in a moment")
	case <-done:
	case <-timer.C:
	}
	if !hasEnded(f.in) {
		return nil
	}
	rec, err := f.l.Store.Get(f.ctx, f.rec.Tenant, string(f.rec.ID))
	if err != nil && brig.KindOf(err) != brig.NotFound {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if in := f.l.instance(f.rec.ID); in != nil && in != f.in {
		f.source.move(in)
		f.in = in
	}
	if err != nil || !rec.State.IsActive() {
		f.ended = true
		f.source.complete()
	}
	return nil
}

// Close implements io.Closer.
func (f *followedLog) Close() error {
	f.cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.release()
	return f.source.Close()
}

// growingLog is a log whose provider can continue reading after its end.
type growingLog struct{ io.ReadCloser }

func (growingLog) complete()          {}
func (growingLog) move(brig.Instance) {}

// rereadLog is a log that its provider can read only as a whole. It returns whole lines, and
// recognizes already returned lines by their timestamps. It returns a line in parts only if the
// line is longer than rereadBuffer.
type rereadLog struct {
	ctx   context.Context
	in    brig.Instance
	timed bool
	final bool // the log is final, so its last line is complete
	next  time.Time
	rest  bytes.Buffer // output that was read but not returned yet
	pass  *logPass     // nil between two reads of the log

	// The position: all lines before the time last were returned, and the first count lines with
	// that time. If part is not zero, only the first part bytes of the last of these lines were
	// returned.
	last  time.Time
	count int
	part  int
}

// logPass is one read of a whole log. The reader stays open between calls of Read,
// so that a follower needs little memory.
type logPass struct {
	log      io.ReadCloser
	lines    *bufio.Reader
	complete bool          // the log was final before the read began
	spent    time.Duration // the time spent reading, without the caller's time

	seen   int // the number of lines read with the time rereadLog.last
	offset int // the number of bytes read of the current line
	skip   int // the number of leading bytes of the current line to skip
}

// Read implements io.Reader.
func (r *rereadLog) Read(p []byte) (int, error) {
	for r.rest.Len() == 0 {
		if r.pass == nil && time.Now().Before(r.next) {
			return 0, io.EOF
		}
		if err := r.reread(); err != nil {
			return 0, errors.Join(err, r.Close())
		}
	}
	return r.rest.Read(p)
}

// reread reads lines that were not returned before, until the log ends or r.rest has about
// rereadBuffer bytes.
func (r *rereadLog) reread() error {
	begin := time.Now()
	if r.pass == nil {
		log, err := r.in.TimedLogs(r.ctx)
		if err != nil {
			return err
		}
		r.pass = &logPass{log: log, lines: bufio.NewReaderSize(log, rereadBuffer), complete: r.final}
	}
	p := r.pass
	for r.rest.Len() < rereadBuffer {
		text, err := p.lines.ReadSlice('\n')
		atEnd := errors.Is(err, io.EOF)
		if err != nil && !atEnd && !errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("read log: %w", err)
		}
		if atEnd && (len(text) == 0 || !p.complete) {
			r.next = time.Now().Add(max(rereadInterval, rereadFactor*(p.spent+time.Since(begin))))
			if r.final && !p.complete {
				r.next = time.Time{} // the last lines may have been added after the read began
			}
			return r.Close()
		}
		r.add(text, err == nil || atEnd)
	}
	p.spent += time.Since(begin)
	return nil
}

// add adds the next bytes of a line to r.rest, unless they were returned before. ended reports
// whether the line ends with these bytes.
func (r *rereadLog) add(text []byte, ended bool) {
	p := r.pass
	if p.offset == 0 {
		p.skip = r.beginLine(text)
	}
	r.rest.Write(text[min(len(text), max(0, p.skip-p.offset)):])
	p.offset += len(text)
	if p.skip != allOfLine {
		r.part = max(r.part, p.offset)
		if ended {
			r.part = 0
		}
	}
	if ended {
		p.offset = 0
	}
}

// allOfLine is the logPass.skip of a line that was returned before.
const allOfLine = math.MaxInt

// beginLine moves the position to the line that begins with text, and returns how many bytes of the
// line to skip.
func (r *rereadLog) beginLine(text []byte) (skip int) {
	head := string(text[:min(len(text), maxTimestampSize)])
	at, after, _ := brig.CutLogTime(head)
	switch {
	case at.Before(r.last):
		return allOfLine
	case at.Equal(r.last):
		r.pass.seen++
		if r.pass.seen == r.count && r.part > 0 {
			return r.part
		}
		if r.pass.seen <= r.count {
			return allOfLine
		}
		r.count++
	default:
		r.last, r.count, r.pass.seen = at, 1, 1
	}
	r.part = 0
	if r.timed {
		return 0
	}
	return len(head) - len(after)
}

func (r *rereadLog) complete() { r.final, r.next = true, time.Time{} }

func (r *rereadLog) move(in brig.Instance) { r.in = in }

// Close implements io.Closer.
func (r *rereadLog) Close() error {
	if r.pass == nil {
		return nil
	}
	log := r.pass.log
	r.pass = nil
	return log.Close()
}
