package kernels

import "time"

// SendWithin sets the time within which a client must read a message.
func (d *API) SendWithin(timeout time.Duration) { d.sendTimeout = timeout }

// CloseWithin sets the time within which a connection must close.
func (d *API) CloseWithin(timeout time.Duration) { d.closeTimeout = timeout }
