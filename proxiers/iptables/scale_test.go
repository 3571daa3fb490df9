package iptables

import (
	"os"
	"testing"
	"time"

	"github.com/viplab/viplab/lab"
)

// TestScale prints what syncs cost. It proves nothing and takes its time, so it runs on demand.
func TestScale(t *testing.T) {
	n := getenvInt("SERVICES", 0)
	if n == 0 {
		t.Skip("set SERVICES to a number")
	}
	for _, b := range backends {
		t.Run(string(b), func(t *testing.T) {
			in := start(t, b, testNode(t, lab.V4))
			s := cluster(n, 5)
			at := time.Now()
			if err := in.Apply(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			first := time.Since(at)
			next := *s
			next.EndpointSlices = append(s.EndpointSlices[:0:0], s.EndpointSlices...)
			_, next.EndpointSlices[2*(n/2)] = simple(n/2, 4, lab.V4)
			at = time.Now()
			if err := in.Apply(t.Context(), &next); err != nil {
				t.Fatal(err)
			}
			endpoint := time.Since(at)
			next2 := next
			next2.Services = append(s.Services[:n/2:n/2], s.Services[n/2+1:]...)
			at = time.Now()
			if err := in.Apply(t.Context(), &next2); err != nil {
				t.Fatal(err)
			}
			service := time.Since(at)
			t.Logf("%d services: first %v, endpoint %v, service %v", n, first, endpoint, service)
			if os.Getenv("DUMP") != "" {
				in.Dump(t.Context(), os.Stdout)
			}
			at = time.Now()
			if err := in.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Logf("stop %v", time.Since(at))
		})
	}
}
