module planted.test

go 1.26
