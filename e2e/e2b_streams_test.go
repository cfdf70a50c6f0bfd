package e2e

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// call sends a request to the E2B API, and decodes the response into out.
func (s *e2bServer) call(t *testing.T, method, path string, in, out any) {
	t.Helper()
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-KEY", strings.TrimPrefix(s.env[0], "E2B_API_KEY="))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err = io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode > 299 {
		t.Fatalf("%s %s: %s: %s, %v", method, path, resp.Status, b, err)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			t.Fatal(err)
		}
	}
}

// stream makes a streaming call to envd, and calls on for each message until on returns false. It
// returns the error of the connection.
func (s *e2bServer) stream(t *testing.T, client *http.Client, box, token, method string, in any, on func(message []byte, last bool) bool) error {
	b, err := json.Marshal(in)
	if err != nil {
		return err
	}
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b)))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+method, bytes.NewReader(append(body, b...)))
	if err != nil {
		return err
	}
	for k, v := range map[string]string{
		"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1",
		"E2b-Sandbox-Id": box, "E2b-Sandbox-Port": "49983", "X-Access-Token": token,
	} {
		req.Header.Set(k, v)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for {
		var head [5]byte
		if _, err := io.ReadFull(resp.Body, head[:]); err != nil {
			return err
		}
		message := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(resp.Body, message); err != nil {
			return err
		}
		if !on(message, head[0]&2 != 0) {
			return nil
		}
	}
}

// TestE2BClientOpensManyStreams verifies that the server handles five hundred concurrent
// streams, and that all of them end when their sandbox is killed.
//
//suite:part clients full
func TestE2BClientOpensManyStreams(t *testing.T) {
	const many = 500
	config := filepath.Join(t.TempDir(), "brig.yaml")
	if err := os.WriteFile(config, []byte("streams: {sandbox: 1200, key: 1000}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startE2B(t, "--config", config)
	var box struct{ SandboxID, EnvdAccessToken string }
	s.call(t, http.MethodPost, "/v2/sandboxes", map[string]any{"templateID": "base", "timeout": 600}, &box)
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 0}}
	var started struct {
		Event struct{ Start struct{ PID int } }
	}
	start := map[string]any{"process": map[string]any{"cmd": "/bin/sh", "args": []string{"-c", "while :; do echo tick; sleep 0.2; done"}}, "stdin": false}
	err := s.stream(t, client, box.SandboxID, box.EnvdAccessToken, "/process.Process/Start", start, func(m []byte, _ bool) bool {
		if err := json.Unmarshal(m, &started); err != nil {
			t.Error(err)
		}
		return false
	})
	if err != nil || started.Event.Start.PID == 0 {
		t.Fatalf("start: %+v, %v", started, err)
	}
	var ticking, broken atomic.Int64
	var streams sync.WaitGroup
	ticked := make(chan struct{})
	for range many {
		streams.Go(func() {
			ticks := 0
			err := s.stream(t, client, box.SandboxID, box.EnvdAccessToken, "/process.Process/Connect",
				map[string]any{"process": map[string]any{"pid": started.Event.Start.PID}}, func(m []byte, last bool) bool {
					if last {
						t.Errorf("a stream ended: %s", m)
						return false
					}
					if bytes.Contains(m, []byte(`"data"`)) {
						if ticks++; ticks == 3 && ticking.Add(1) == many {
							close(ticked)
						}
					}
					return true
				})
			if err != nil {
				broken.Add(1)
			}
		})
	}
	select {
	case <-ticked:
	case <-time.After(4 * promptTimeout):
		t.Fatalf("%d of %d streams hear the process", ticking.Load(), many)
	}
	s.call(t, http.MethodDelete, "/sandboxes/"+box.SandboxID, nil, nil)
	done := make(chan struct{})
	go func() { streams.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * promptTimeout):
		t.Fatal("streams are left hanging when their sandbox is killed")
	}
	if n := broken.Load(); n != many {
		t.Errorf("%d of %d streams were broken off, as clients expect", n, many)
	}
}
