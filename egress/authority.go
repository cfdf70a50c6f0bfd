package egress

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 24 * time.Hour
	leafSpare     = time.Hour // a leaf that has less left is made anew
	maxLeaves     = 256
	clockSkew     = time.Hour // a sandbox's clock may be behind
)

// Authority issues the certificates with which TLS is ended for one sandbox,
// and which only that sandbox trusts. The zero value is one that has not been
// made yet: that happens when it is first used. Its key is only in memory.
type Authority struct {
	seed []byte

	mu     sync.Mutex // guards the fields below
	key    *ecdsa.PrivateKey
	cert   *x509.Certificate
	leaves map[string]*tls.Certificate
}

// NewAuthority returns the authority of a seed, which has the same key each
// time: what trusts it trusts the next server's, too. The seed is a secret.
func NewAuthority(seed []byte) *Authority { return &Authority{seed: seed} }

// Certificate returns the authority's certificate as PEM: what the sandbox
// is to trust.
func (a *Authority) Certificate() ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.make(); err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), nil
}

// make makes the authority if it has not been made.
func (a *Authority) make() error {
	if a.cert != nil {
		return nil
	}
	// The certificate is read by the sandbox's clock, which is the machine's.
	now := time.Now()
	cert := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"Brig"}, CommonName: "Brig egress of one sandbox"},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	own, err := ownKey(a.seed)
	if err != nil {
		return err
	}
	key, der, err := issue(cert, nil, own)
	if err != nil {
		return err
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("reading the authority's certificate: %w", err)
	}
	a.key, a.cert = key, made
	return nil
}

// leaf returns a certificate for a name.
func (a *Authority) leaf(name string, now time.Time) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.leaves[name]; l != nil && now.Before(l.Leaf.NotAfter.Add(-leafSpare)) && now.After(l.Leaf.NotBefore) {
		return l, nil
	}
	if err := a.make(); err != nil {
		return nil, err
	}
	cert := &x509.Certificate{
		DNSNames:    []string{name},
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.Add(leafLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if len(name) <= 64 { // what a common name has room for
		cert.Subject.CommonName = name
	}
	key, der, err := issue(cert, a.cert, a.key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading a certificate: %w", err)
	}
	if a.leaves == nil || len(a.leaves) >= maxLeaves {
		a.leaves = map[string]*tls.Certificate{}
	}
	l := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: parsed}
	a.leaves[name] = l
	return l, nil
}

// ownKey is the key of a seed; nil for none.
func ownKey(seed []byte) (*ecdsa.PrivateKey, error) {
	if len(seed) == 0 {
		return nil, nil
	}
	for try := range 8 { // once in 2^32 it is no key of the curve
		b, err := hkdf.Key(sha256.New, seed, nil, fmt.Sprint("egress authority ", try), 32)
		if err != nil {
			return nil, fmt.Errorf("deriving a key: %w", err)
		}
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), b); err == nil {
			return key, nil
		}
	}
	return nil, errors.New("the seed has no key")
}

// issue makes a certificate for a new key, which parent signs; without a
// parent it is the signer's own, or signs itself.
func issue(cert, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte, error) {
	key := signer
	var err error
	if parent != nil || key == nil {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, nil, fmt.Errorf("making a key: %w", err)
		}
	}
	cert.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, fmt.Errorf("making a serial number: %w", err)
	}
	if parent == nil {
		parent, signer = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, nil, fmt.Errorf("signing a certificate: %w", err)
	}
	return key, der, nil
}
