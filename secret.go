package brig

import "time"

// Secret is a named value of a tenant. The value itself is written once and
// never told again.
type Secret struct {
	// Name is unique among the tenant's secrets; as ValidName.
	Name string
	// Hosts are those that the value may be sent to, as in EgressRule.Host. A
	// secret with hosts never enters a sandbox: what runs there has a
	// placeholder, for which the proxy puts the value into requests to these
	// hosts. One without hosts is handed to sandboxes as it is.
	Hosts []string
	// Places are the parts of a request in which a placeholder is replaced.
	// Default SecretHeader.
	Places []SecretPlace
	// Exclusive refuses requests to these hosts that carry credentials which
	// are not the placeholder.
	Exclusive bool
	// Version counts the values that it has had, from 1.
	Version          int
	Created, Updated time.Time
}

// SecretPlace is a part of an HTTP request.
type SecretPlace string

// The places in which a secret may be put.
const (
	SecretHeader SecretPlace = "header" // any header, credentials of basic authentication included
	SecretQuery  SecretPlace = "query"
	SecretBody   SecretPlace = "body"
)

// SecretUse gives a sandbox a secret, or its placeholder, as a variable.
type SecretUse struct {
	// Name is the secret's.
	Name string
	// Env is the variable. Default the name in capitals, "_" for "-".
	Env string
}
