// SPDX-License-Identifier: Apache-2.0

package given

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// Health is what came of a question to a node's health-check port.
type Health struct {
	// Code is the status of HTTP, 0 if the connection was refused.
	Code   int
	Header http.Header
	Body   []byte
}

// HealthPort is the health-check port of a Service.
func HealthPort(w spec.World, service string) (uint16, error) {
	s, ok := store.Get[*corev1.Service](w.Store(), w.Namespace(), service)
	if !ok || s.Spec.HealthCheckNodePort == 0 {
		return 0, spec.HarnessErrorf("Service %s has no healthCheckNodePort", service)
	}
	return uint16(s.Spec.HealthCheckNodePort), nil
}

// AskHealth asks over HTTP, from a host outside of the cluster, as a load balancer does.
func AskHealth(ctx context.Context, w spec.World, from, path string, at netip.AddrPort) (Health, error) {
	h, err := w.Host(from)
	if err != nil {
		return Health{}, err
	}
	ctx, cancel := InTime(ctx)
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return h.Dial(ctx, network, netip.AddrPort{}, netip.MustParseAddrPort(address))
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+path, nil)
	if err != nil {
		return Health{}, &spec.HarnessError{Err: err}
	}
	response, err := client.Do(request)
	if errors.Is(err, unix.ECONNREFUSED) {
		return Health{}, nil
	}
	if err != nil {
		return Health{}, fmt.Errorf("ask %s: %w", at, errors.Join(err, context.Cause(ctx)))
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return Health{}, fmt.Errorf("ask %s: %w", at, err)
	}
	return Health{response.StatusCode, response.Header, body}, nil
}
