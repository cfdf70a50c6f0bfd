//go:build bench

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
)

// abuseSandboxes is the attacker's quota of sandboxes.
const abuseSandboxes = 20

// abuseRequest is the input of the attacker: the URL of the server, API keys of the attacker's
// tenant, and the duration of the attack.
type abuseRequest struct {
	URL, Viewer, Member string
	For                 time.Duration
}

// attacker runs one attack in its own process.
type attacker struct {
	abuseRequest
	world  *abuseWorld
	member *client.Client
	http   *http.Client

	mu     sync.Mutex // guards the field below
	counts map[string]int64
}

// attackerCommand returns the hidden command that the attacker's process runs.
func (c benchCommands) attackerCommand() *cobra.Command {
	return &cobra.Command{
		Use: "attacker CASE", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.runAttack(cmd.Context(), args[0]) },
	}
}

// runAttack starts an abuseWorld and prints its addresses. It then reads a request and attacks for
// the requested duration.
func (c benchCommands) runAttack(ctx context.Context, name string) error {
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19); err != nil {
		return fmt.Errorf("lower the attacker's priority: %w", err)
	}
	w, err := newWorld()
	if err != nil {
		return err
	}
	say := json.NewEncoder(c.stdout)
	if err := say.Encode(w); err != nil {
		return err
	}
	a := &attacker{world: w, counts: map[string]int64{}}
	if err := json.NewDecoder(os.Stdin).Decode(&a.abuseRequest); err != nil {
		if errors.Is(err, io.EOF) {
			return nil // the benchmark has ended
		}
		return err
	}
	a.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if a.member, err = client.New(client.Options{URL: a.URL, Key: a.Member, RetryTimeout: 10 * time.Second}); err != nil {
		return err
	}
	for _, one := range abuses() {
		if one.name != name {
			continue
		}
		var begun struct{ Error string }
		run, err := one.prepare(ctx, a)
		if err != nil {
			begun.Error = err.Error()
		}
		if sayErr := say.Encode(begun); err != nil || sayErr != nil {
			return errors.Join(err, sayErr)
		}
		actx, cancel := context.WithTimeout(ctx, a.For)
		run(actx)
		cancel()
		a.mu.Lock()
		defer a.mu.Unlock()
		w.count(a.counts)
		return say.Encode(a.counts)
	}
	return fmt.Errorf("there is no case %q", name)
}

func (a *attacker) count(what string, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts[what] += n
}

// call counts the result of one call of the client.
func (a *attacker) call(what string, err error) {
	switch {
	case err == nil:
		a.count(what, 1)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	default:
		a.count(what+" refused "+brig.AsError(err).Kind.Code(), 1)
		if brig.KindOf(err) == brig.Unavailable {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// repeatConcurrently runs n loops of f concurrently until ctx ends.
func (a *attacker) repeatConcurrently(ctx context.Context, n int, f func(ctx context.Context, i int)) {
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			for ctx.Err() == nil {
				f(ctx, i)
			}
		})
	}
	calls.Wait()
}

// get sends a request, discards the body of the response and counts its status.
func (a *attacker) get(ctx context.Context, method, path, key, body string) {
	req, err := http.NewRequestWithContext(ctx, method, a.URL+path, strings.NewReader(body))
	if err != nil {
		return
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	a.count(fmt.Sprintf("answers %d", resp.StatusCode), 1)
}

// openStream opens a connection with a small receive window and sends a request on it. The caller
// may write more of the body, and reads at most the status line.
func (a *attacker) openStream(ctx context.Context, key, method, path, header string, body []byte) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(a.URL, "http://"))
	if err != nil {
		return nil, err
	}
	_ = c.(*net.TCPConn).SetReadBuffer(8 << 10)
	context.AfterFunc(ctx, func() { c.Close() })
	var head bytes.Buffer
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n%s\r\n", method, path, key, header)
	if _, err := c.Write(append(head.Bytes(), body...)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// status reads the status of a response. It returns 0 if no response arrives in time.
func status(c net.Conn, wait time.Duration) (code int) {
	_ = c.SetReadDeadline(time.Now().Add(wait))
	b := make([]byte, 16)
	n, _ := io.ReadAtLeast(c, b, 12)
	_, _ = fmt.Sscanf(string(b[:n]), "HTTP/1.1 %d", &code)
	return code
}

// sleep sleeps for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// createSandbox creates a sandbox as the attacker.
func (a *attacker) createSandbox(ctx context.Context, name string, spec brig.Spec) error {
	spec.Name, spec.TTL = name, time.Hour
	_, err := a.member.Create(ctx, spec)
	return err
}

// keepSandboxes keeps n sandboxes with the given spec running. A sandbox that has ended is
// replaced.
func (a *attacker) keepSandboxes(ctx context.Context, n int, spec brig.Spec) {
	a.repeatConcurrently(ctx, n, func(ctx context.Context, i int) {
		name := fmt.Sprintf("box-%d", i)
		err := a.createSandbox(ctx, name, spec)
		if a.call("sandboxes", err); err != nil {
			sleep(ctx, time.Second)
			return
		}
		for ctx.Err() == nil {
			if s, err := a.member.Get(ctx, name); err == nil && s.State == brig.Ended {
				break
			}
			sleep(ctx, time.Second)
		}
		if ctx.Err() == nil {
			a.call("removals", a.member.Remove(ctx, name))
		}
	})
}
