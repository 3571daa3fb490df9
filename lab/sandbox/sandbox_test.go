package sandbox

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

func TestInside(t *testing.T) {
	if !Inside() {
		t.Fatal("not inside")
	}
	h, _ := os.Hostname()
	t.Log(h, os.Getpid(), Rootless())
}
