package kernels_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig/api/kernels"
)

// A connection is closed in time even if the client has sent only a part of a large frame.
func TestCloseDoesNotWaitForIncompleteFrame(t *testing.T) {
	url, _, d := serve(t)
	d.CloseWithin(time.Second)
	resp, err := http.Post(url+"/api/kernels?token="+key, "application/json", strings.NewReader(`{"name":"`+kernels.Ephemeral+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var k struct{ ID string }
	if err := json.NewDecoder(resp.Body).Decode(&k); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /api/kernels/"+k.ID+"/channels?token="+key+" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	if response, err := http.ReadResponse(r, nil); err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(response, err)
	}
	// These bytes are the header of a binary frame of 16 MiB. The server accepts only text
	// frames.
	if _, err := conn.Write([]byte{0x82, 0xff, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(15 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Errorf("the connection is still open: %v", err)
	}
}
