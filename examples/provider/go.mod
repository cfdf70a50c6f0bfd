module example.com/acme

go 1.26.8

require github.com/brig-run/brig v0.0.0

replace github.com/brig-run/brig => ../..
