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
	caLifetime      = 10 * 365 * 24 * time.Hour
	leafLifetime    = 24 * time.Hour
	leafRenewBefore = time.Hour // a leaf that expires sooner is replaced
	maxLeaves       = 256
	clockSkew       = time.Hour // a sandbox's clock may be behind
)

// CA issues the certificates with which the egress terminates the TLS of one
// sandbox. Only that sandbox trusts it. The zero value is ready to use: its key
// and certificate are generated on first use. The key is kept only in memory.
type CA struct {
	seed []byte

	mu     sync.Mutex // guards the fields below
	key    *ecdsa.PrivateKey
	cert   *x509.Certificate
	leaves map[string]*tls.Certificate
}

// NewCA returns the CA that is derived from a seed. The same seed always gives the same key, so a
// sandbox that trusts this CA also trusts the CA of the next server. The seed is a secret.
func NewCA(seed []byte) *CA { return &CA{seed: seed} }

// Certificate returns the authority's certificate as PEM, for the sandbox's
// trust store.
func (a *CA) Certificate() ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.generate(); err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), nil
}

// generate generates the key and the certificate if they do not exist yet.
func (a *CA) generate() error {
	if a.cert != nil {
		return nil
	}
	// The sandbox checks the validity with its own clock, which matches the host's.
	now := time.Now()
	cert := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"Brig"}, CommonName: "Brig egress of one sandbox"},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	signer, err := deriveKey(a.seed)
	if err != nil {
		return err
	}
	key, der, err := issue(cert, nil, signer)
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

// issueLeaf returns a certificate for a name.
func (a *CA) issueLeaf(name string, now time.Time) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.leaves[name]; l != nil && now.Before(l.Leaf.NotAfter.Add(-leafRenewBefore)) && now.After(l.Leaf.NotBefore) {
		return l, nil
	}
	if err := a.generate(); err != nil {
		return nil, err
	}
	cert := &x509.Certificate{
		DNSNames:    []string{name},
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.Add(leafLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if len(name) <= 64 { // the longest common name that X.509 allows
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

// deriveKey returns the key that is derived from a seed, or nil if the seed is
// empty.
func deriveKey(seed []byte) (*ecdsa.PrivateKey, error) {
	if len(seed) == 0 {
		return nil, nil
	}
	for try := range 8 { // a candidate is invalid once in 2^32
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

// issue creates a certificate for a new key, signed by parent with signer. If
// parent is nil, the certificate is self-signed, and its key is signer, or a
// new key if signer is nil.
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
