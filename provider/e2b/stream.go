package e2b

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/brig-run/brig"
	pb "github.com/brig-run/brig/api/e2b/envd/processpb"
	"github.com/brig-run/brig/guest/wire"
)

// box is a client of the services inside a sandbox.
type box struct {
	api     *api
	url     string
	id      string
	token   string
	account string
}

func (a *api) newBox(s *sandbox) (*box, error) {
	domain := ""
	if s.Domain != nil {
		domain = *s.Domain
	}
	at, err := a.config.sandboxAddress(s.SandboxID, domain)
	if err != nil {
		return nil, err
	}
	return &box{api: a, url: at, id: s.SandboxID, token: s.EnvdAccessToken, account: a.config.Account}, nil
}

// sign adds the sandbox's ID and token to a request.
func (b *box) sign(h http.Header) {
	h.Set("E2b-Sandbox-Id", b.id)
	h.Set("E2b-Sandbox-Port", envdPort)
	if b.token != "" {
		h.Set("X-Access-Token", b.token)
	}
}

// Do implements connect.HTTPClient.
func (b *box) Do(r *http.Request) (*http.Response, error) {
	b.sign(r.Header)
	r.SetBasicAuth(b.account, "")
	op := "process." + r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	return b.api.send(op, r)
}

// Paths of the agent and of its supervisor's directory in a sandbox.
const (
	agentDir      = "/tmp/.brig"
	agentPath     = agentDir + "/agent"
	supervisorDir = agentDir + "/keeper"
)

// uploadAgent uploads the agent.
func (b *box) uploadAgent(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(b.api.config.Timeout)*time.Second)
	defer cancel()
	program, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the agent: %w", err)
	}
	var body bytes.Buffer
	z, err := gzip.NewWriterLevel(&body, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if _, err := z.Write(program); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	q := url.Values{"path": {agentPath}, "username": {b.account}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/files?"+q.Encode(), &body)
	if err != nil {
		return err
	}
	b.sign(req.Header)
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set("Content-Encoding", "gzip")
	resp, err := b.api.send("files", req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return unreachableError(err)
	}
	if resp.StatusCode/100 != 2 {
		return failureError(resp, answer)
	}
	return nil
}

// script creates the directories that the agent needs, and executes the agent.
const script = `chmod 700 ` + agentDir + ` ` + agentPath + ` || exit 1
[ -w /workspace ] || { sudo -n mkdir -p /workspace && sudo -n chown "$(id -u):$(id -g)" /workspace; } 2>/dev/null
exec ` + agentPath + ` ` + wire.ConnectWord + ` ` + supervisorDir + ` 90`

// maxEvent is the maximum size of one event of a process, in bytes. The size
// must be limited, because a hostile sandbox controls the response.
const maxEvent = 8 << 20

// connectAgent starts the agent and returns its standard streams.
func (b *box) connectAgent(ctx context.Context) (_ io.ReadWriteCloser, err error) {
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	client := pb.NewProcessClient(b, b.url, connect.WithProtoJSON(), connect.WithReadMaxBytes(maxEvent))
	yes := true
	events, err := client.Start(streamCtx, &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", script}}, Stdin: &yes})
	if err == nil && !events.Receive() {
		err = errors.Join(events.Err(), io.ErrUnexpectedEOF)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel()
		return nil, b.serviceError(err)
	}
	start := events.Msg().GetEvent().GetStart()
	if start == nil {
		cancel()
		return nil, brig.Errorf(brig.ConnectionFailed, "the sandbox's services are not what E2B's are")
	}
	s := &stream{b: b, client: client, pid: start.GetPid(), events: events, ctx: streamCtx, cancel: cancel}
	s.changed.L = &s.mu
	go s.send()
	return s, nil
}

// serviceError converts an error of a sandbox's services.
func (b *box) serviceError(err error) error {
	var e *connect.Error
	if !errors.As(err, &e) {
		return unreachableError(err)
	}
	switch e.Code() {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return brig.Errorf(brig.InvalidConfig, "the sandbox does not take its key").Because(err)
	case connect.CodeResourceExhausted:
		return brig.Errorf(brig.RateLimited, "the E2B service rejects calls because of a rate limit").Because(err)
	default:
		return brig.Errorf(brig.ConnectionFailed, "the sandbox of the E2B service cannot be reached").WithHint("it may have ended; make another one").Because(err)
	}
}

// waiting is the maximum number of queued bytes, and atOnce the maximum number
// of bytes per call.
const (
	waiting = 1 << 20
	atOnce  = 512 << 10
)

// stream connects to the standard streams of a process in a sandbox. Output
// arrives as events of one call. Each input is sent in a separate call.
type stream struct {
	b      *box
	client pb.ProcessClient
	pid    uint32
	ctx    context.Context // the context of the process's events
	cancel context.CancelFunc

	events     *connect.ServerStreamForClient[pb.StartResponse]
	rest       []byte
	stderrTail []byte // the last bytes of standard error

	mu      sync.Mutex // guards the fields below
	changed sync.Cond
	out     []byte
	err     error
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if !s.events.Receive() {
			err := s.events.Err()
			if err == nil {
				err = io.EOF
			}
			s.end(err)
			return 0, err
		}
		ev := s.events.Msg().GetEvent()
		if e := ev.GetEnd(); e != nil {
			err := fmt.Errorf("the agent's program ended (%s): %s", e.GetStatus(), s.stderrTail)
			s.end(err)
			return 0, err
		}
		s.stderrTail = append(s.stderrTail, ev.GetData().GetStderr()...)
		s.stderrTail = s.stderrTail[max(0, len(s.stderrTail)-2048):]
		s.rest = ev.GetData().GetStdout()
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Write implements io.Writer.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.out) >= waiting && s.err == nil {
		s.changed.Wait()
	}
	if s.err != nil {
		return 0, s.err
	}
	s.out = append(s.out, p...)
	s.changed.Broadcast()
	return len(p), nil
}

// send sends all queued bytes in one request.
func (s *stream) send() {
	for {
		s.mu.Lock()
		for len(s.out) == 0 && s.err == nil {
			s.changed.Wait()
		}
		if s.err != nil {
			s.mu.Unlock()
			return
		}
		n := min(len(s.out), atOnce)
		batch := s.out[:n:n]
		if s.out = s.out[n:]; len(s.out) == 0 {
			s.out = nil
		}
		s.changed.Broadcast()
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(s.ctx, time.Duration(s.b.api.config.Timeout)*time.Second)
		_, err := s.client.SendInput(ctx, &pb.SendInputRequest{
			Process: &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: s.pid}},
			Input:   &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: batch}},
		})
		cancel()
		if err != nil {
			s.end(err) // the data may be lost, and sending more could leave a gap
			return
		}
	}
}

func (s *stream) end(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.changed.Broadcast()
	s.mu.Unlock()
	s.cancel()
}

// Close implements io.Closer. The process exits because it receives no more
// heartbeats.
func (s *stream) Close() error {
	s.end(io.ErrClosedPipe)
	return nil
}
