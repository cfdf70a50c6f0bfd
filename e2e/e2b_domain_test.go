package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig/internal/testenv"
)

// certificate writes a self-signed certificate for a domain and its subdomains,
// and its key.
func certificate(t *testing.T, domain string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: domain}, DNSNames: []string{domain, "*." + domain},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// startE2BDomain is like startE2B, but for clients that are configured with only a domain: every
// sandbox has its own host names, with TLS.
func startE2BDomain(t *testing.T, more ...string) *e2bServer {
	t.Helper()
	cert, key := certificate(t, "e2b.test")
	port := testenv.Port(t)
	config := filepath.Join(t.TempDir(), "brig.yaml")
	domain := fmt.Sprintf("e2b.test:%d", port)
	text := fmt.Sprintf("e2b: {domain: %q, listen: \"127.0.0.1:%d\", cert: %q, key: %q%s}\n", domain, port, cert, key, strings.Join(more, ""))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startE2B(t, "--config", config)
	s.env = append(s.env[:1:1], "E2B_DOMAIN="+domain, "NODE_EXTRA_CA_CERTS="+cert, "SSL_CERT_FILE="+cert, "NODE_OPTIONS=--require ./dns.cjs")
	if !strings.HasPrefix(s.env[0], "E2B_API_KEY=") {
		t.Fatal("the key is not the first that a client is told")
	}
	return s
}

// TestE2BDomain verifies that clients can connect to a server in a sandbox by its host name in
// wildcard mode, and that all of the SDK's features work with host names.
//
//suite:part clients full
func TestE2BDomain(t *testing.T) {
	s := startE2BDomain(t)
	t.Run("ports", func(t *testing.T) { s.checks(t, 1, "port.mjs") })
	t.Run("sandbox", func(t *testing.T) { s.checks(t, 24, "sandbox.mjs") })
	t.Run("code", func(t *testing.T) { s.checks(t, 11, "code.mjs") })
}

// TestE2BWebSocket verifies that a WebSocket client can connect to a server in a sandbox by host
// name and by headers, and that the connection is closed when the sandbox ends.
//
//suite:part clients full
func TestE2BWebSocket(t *testing.T) {
	s := startE2BDomain(t)
	s.checks(t, 10, "websocket.mjs", "BRIG_URL="+s.url)
}
