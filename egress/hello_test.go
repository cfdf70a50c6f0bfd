package egress

import (
	"crypto/tls"
	"net"
	"testing"
)

// clientHello records a TLS client's first bytes.
func clientHello(t *testing.T, name string) []byte {
	t.Helper()
	return recordHello(t, &tls.Config{ServerName: name, InsecureSkipVerify: true})
}

// hiddenHello returns a client hello that encrypts the server name (RFC 9849).
func hiddenHello(t *testing.T) []byte {
	t.Helper()
	h := clientHello(t, "api.test")
	// Append an empty extension of that type to the hello.
	extra := []byte{0xfe, 0x0d, 0, 0}
	h = append(h, extra...)
	add := func(at, size int) {
		n := 0
		for i := range size {
			n = n<<8 | int(h[at+i])
		}
		n += len(extra)
		for i := range size {
			h[at+size-1-i] = byte(n >> (8 * i))
		}
	}
	add(3, 2) // the record's length
	add(6, 3) // the message's length
	at := 5 + 4 + 2 + 32
	at += 1 + int(h[at])
	at += 2 + int(h[at])<<8 + int(h[at+1])
	at += 1 + int(h[at])
	add(at, 2) // the length of the extensions
	return h
}

func recordHello(t *testing.T, c *tls.Config) []byte {
	t.Helper()
	here, there := net.Pipe()
	defer there.Close()
	go func() {
		_ = tls.Client(here, c).Handshake()
		here.Close()
	}()
	b := make([]byte, 64<<10)
	n, err := there.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}
