package egress

import (
	"bytes"
	"crypto/x509"
	"strings"
	"testing"
	"time"
)

func newCertPool(t testing.TB, a *CA) *x509.CertPool {
	t.Helper()
	cert, err := a.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(cert) {
		t.Fatalf("not a certificate: %s", cert)
	}
	return pool
}

func TestCAIssuesCertificatesForRequestedHosts(t *testing.T) {
	a, now := &CA{}, time.Now()
	for _, name := range []string{"api.test", "a.b.c.test", strings.Repeat("long.", 40) + "test"} {
		l, err := a.issueLeaf(name, now)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: newCertPool(t, a), CurrentTime: now}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := l.Leaf.Verify(x509.VerifyOptions{DNSName: "other.test", Roots: newCertPool(t, a), CurrentTime: now}); err == nil {
			t.Errorf("the certificate of %s is good for another name", name)
		}
		// A certificate does not verify against another sandbox's CA.
		if _, err := l.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: newCertPool(t, &CA{}), CurrentTime: now}); err == nil {
			t.Errorf("%s: every authority is good", name)
		}
	}
}

func TestCAReissuesLeafOnlyNearExpiry(t *testing.T) {
	a, now := &CA{}, time.Now()
	first, _ := a.issueLeaf("api.test", now)
	second, _ := a.issueLeaf("api.test", now.Add(time.Hour))
	if first == nil || first != second {
		t.Error("a leaf is made twice")
	}
	later, _ := a.issueLeaf("api.test", now.Add(leafLifetime-leafRenewBefore+time.Second))
	if later == first || !later.Leaf.NotAfter.After(first.Leaf.NotAfter) {
		t.Error("a leaf that is about to end is not made anew")
	}
	for i := range 3 * maxLeaves {
		if _, err := a.issueLeaf(strings.Repeat("a", i%60+1)+".test", now); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.leaves) > maxLeaves {
		t.Errorf("there are %d leaves", len(a.leaves))
	}
}

// A client that trusts a CA also trusts the CA of the next server with the same
// seed, and no other CA.
func TestCAIsTrustedAfterRestart(t *testing.T) {
	a, b, c := NewCA([]byte("one seed")), NewCA([]byte("one seed")), NewCA([]byte("another"))
	now := time.Now()
	trusted := newCertPool(t, a)
	for i, next := range []*CA{a, b, c, {}} {
		l, err := next.issueLeaf("api.test", now)
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.Leaf.Verify(x509.VerifyOptions{DNSName: "api.test", Roots: trusted, CurrentTime: now})
		if (err == nil) != (i < 2) {
			t.Errorf("authority %d: %v", i, err)
		}
	}
	if pem, _ := a.Certificate(); bytes.Contains(pem, []byte("PRIVATE")) {
		t.Error("the guest gets the key")
	}
}
