package egress

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"
)

func trusting(t testing.TB, a *Authority) *x509.CertPool {
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

func TestAuthorityIssues(t *testing.T) {
	a, now := &Authority{}, time.Now()
	for _, name := range []string{"api.test", "a.b.c.test", strings.Repeat("long.", 40) + "test"} {
		l, err := a.leaf(name, now)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: trusting(t, a), CurrentTime: now}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := l.Leaf.Verify(x509.VerifyOptions{DNSName: "other.test", Roots: trusting(t, a), CurrentTime: now}); err == nil {
			t.Errorf("the certificate of %s is good for another name", name)
		}
		// Another sandbox's authority is not trusted.
		if _, err := l.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: trusting(t, &Authority{}), CurrentTime: now}); err == nil {
			t.Errorf("%s: every authority is good", name)
		}
	}
}

func TestAuthorityKeepsLeaves(t *testing.T) {
	a, now := &Authority{}, time.Now()
	first, _ := a.leaf("api.test", now)
	again, _ := a.leaf("api.test", now.Add(time.Hour))
	if first == nil || first != again {
		t.Error("a leaf is made twice")
	}
	later, _ := a.leaf("api.test", now.Add(leafLife-leafSpare+time.Second))
	if later == first || !later.Leaf.NotAfter.After(first.Leaf.NotAfter) {
		t.Error("a leaf that is about to end is not made anew")
	}
	for i := range 3 * maxLeaves {
		if _, err := a.leaf(strings.Repeat("a", i%60+1)+".test", now); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.leaves) > maxLeaves {
		t.Errorf("there are %d leaves", len(a.leaves))
	}
}

func TestAuthorityOutlivesServer(t *testing.T) {
	a, now := &Authority{}, time.Now()
	exported, err := a.Export()
	if err != nil {
		t.Fatal(err)
	}
	b, err := ImportAuthority(exported)
	if err != nil {
		t.Fatal(err)
	}
	one, _ := a.Certificate()
	two, _ := b.Certificate()
	if !bytes.Equal(one, two) {
		t.Error("the certificate has changed")
	}
	l, err := b.leaf("api.test", now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Leaf.Verify(x509.VerifyOptions{DNSName: "api.test", Roots: trusting(t, a), CurrentTime: now}); err != nil {
		t.Error(err)
	}
	if bytes.Contains(one, []byte("PRIVATE")) {
		t.Error("the guest gets the key")
	}
}

func TestAuthorityImportRefuses(t *testing.T) {
	a, b := &Authority{}, &Authority{}
	one, _ := a.Export()
	two, _ := b.Export()
	cert, key := pem.Decode(one)
	_ = cert
	otherCert, otherKey := pem.Decode(two)
	leaf, _ := a.leaf("api.test", time.Now())
	leafPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]})
	for name, in := range map[string][]byte{
		"nothing":       nil,
		"no key":        pem.EncodeToMemory(cert),
		"no cert":       key,
		"cut":           one[:len(one)/2],
		"another's key": append(pem.EncodeToMemory(cert), otherKey...),
		"a leaf":        append(leafPEM, key...),
		"twice a cert":  append(pem.EncodeToMemory(otherCert), pem.EncodeToMemory(cert)...),
	} {
		if _, err := ImportAuthority(in); err == nil {
			t.Errorf("%s: imported", name)
		} else if strings.Contains(err.Error(), "MI") {
			t.Errorf("%s: quotes it: %v", name, err)
		}
	}
}
