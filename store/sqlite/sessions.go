package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// These are the statements for sessions.
const (
	putSession = `
		insert into sessions (hash, id, tenant, key, created_ns, used_ns, expires_ns, doc) values ($1, $2, $3, $4, $5, $6, $7, $8)`
	deleteSession        = `delete from sessions where tenant = $1 and id = $2`
	deleteKeySessions    = `delete from sessions where key = $1`
	deleteTenantSessions = `delete from sessions where tenant = $1`
	touchSession         = `update sessions set used_ns = $2 where id = $1`
	pruneSessions        = `delete from sessions where expires_ns < $1 or used_ns < $2`
)

// sessionDoc holds the fields of a session that have no column of their own.
type sessionDoc struct {
	ID               string
	Actor            brig.Actor
	Created, Expires time.Time
	CSRF             []byte `json:",omitempty"`
}

// PutSession implements brig.Store.
func (s *tenants) PutSession(ctx context.Context, x brig.Session) error {
	x.Actor.Expires = x.Actor.Expires.UTC()
	doc, err := json.Marshal(sessionDoc{x.ID, x.Actor, x.Created.UTC(), x.Expires.UTC(), x.CSRF[:]})
	if err != nil {
		return wrap(err, "encode session of %s", x.Actor.Name)
	}
	err = s.write(ctx, nil, func(t *tx) error {
		_, err := t.exec(putSession, x.Hash[:], x.ID, x.Actor.Tenant, x.Actor.Key, toNanos(x.Created), toNanos(x.Used), toNanos(x.Expires), string(doc))
		return err
	})
	return wrap(err, "put session of %s", x.Actor.Name)
}

// FindSession implements brig.Store.
func (s *tenants) FindSession(ctx context.Context, hash [32]byte) (*brig.Session, error) {
	x, err := scanSession(s.readers.QueryRowContext(ctx, `select hash, used_ns, doc from sessions where hash = $1`, hash[:]))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, contract.SessionNotFoundError()
	}
	return x, wrap(err, "find session")
}

// Sessions implements brig.Store.
func (s *tenants) Sessions(ctx context.Context, tenant string) ([]*brig.Session, error) {
	out, err := query(ctx, s.readers, scanSession, `
		select hash, used_ns, doc from sessions where tenant = $1 or $1 = '*' order by created_ns, id`, tenant)
	return out, wrap(err, "list sessions of %s", tenant)
}

func scanSession(row scanner) (*brig.Session, error) {
	var hash []byte
	var used int64
	var text string
	if err := row.Scan(&hash, &used, &text); err != nil {
		return nil, err
	}
	var doc sessionDoc
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return nil, err
	}
	x := &brig.Session{ID: doc.ID, Actor: doc.Actor, Created: doc.Created, Used: time.Unix(0, used).UTC(), Expires: doc.Expires}
	copy(x.Hash[:], hash)
	copy(x.CSRF[:], doc.CSRF)
	return x, nil
}

// DeleteSession implements brig.Store.
func (s *tenants) DeleteSession(ctx context.Context, tenant, id string) error {
	err := s.write(ctx, nil, func(t *tx) error {
		_, err := t.exec(deleteSession, tenant, id)
		return err
	})
	return wrap(err, "delete session %s", id)
}

// TouchSessions implements brig.Store.
func (s *tenants) TouchSessions(ctx context.Context, used map[string]time.Time) error {
	return wrap(s.touch(ctx, touchSession, used), "note when sessions were used")
}

// PruneSessions implements brig.Store.
func (s *tenants) PruneSessions(ctx context.Context, now, idle time.Time) error {
	err := s.write(ctx, nil, func(t *tx) error {
		_, err := t.exec(pruneSessions, toNanos(now), toNanos(idle))
		return err
	})
	return wrap(err, "forget sessions that have ended")
}
