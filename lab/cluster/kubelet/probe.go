// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// eager is how often a container that is not ready yet is asked again at most. It keeps a lab from waiting for long
// periods, and no program can tell it from a short period.
const eager = 500 * time.Millisecond

// probe asks the container how it is, until ctx ends.
func (u *unit) probe(ctx context.Context) {
	if s := u.spec.StartupProbe; s != nil {
		up := false
		if !u.poll(ctx, "Startup", s, seconds(s.PeriodSeconds, 10), func(ok bool, failures int32) bool {
			up = ok
			return ok || failures >= cmp.Or(s.FailureThreshold, 3)
		}) {
			return
		}
		u.pod.mu.Lock()
		u.started = up
		u.ready = up && u.spec.ReadinessProbe == nil
		u.pod.mu.Unlock()
		if !up {
			u.tell("Killing", "Container %s failed startup probe, will be restarted", u.spec.Name)
			u.stopRun(u.killDeadline(s))
			return
		}
		u.pod.report()
		u.up()
	}
	var both sync.WaitGroup
	if r := u.spec.ReadinessProbe; r != nil {
		both.Go(func() { u.watchReadiness(ctx, r) })
	}
	if l := u.spec.LivenessProbe; l != nil {
		both.Go(func() {
			if u.poll(ctx, "Liveness", l, seconds(l.PeriodSeconds, 10), func(_ bool, failures int32) bool {
				return failures >= cmp.Or(l.FailureThreshold, 3)
			}) {
				u.tell("Killing", "Container %s failed liveness probe, will be restarted", u.spec.Name)
				u.stopRun(u.killDeadline(l))
			}
		})
	}
	both.Wait()
}

// killDeadline returns until when a container that a probe ends may take.
func (u *unit) killDeadline(p *corev1.Probe) time.Time {
	if s := p.TerminationGracePeriodSeconds; s != nil {
		return time.Now().Add(time.Duration(*s) * time.Second)
	}
	return time.Now().Add(gracePeriod(u.pod.object))
}

func (u *unit) watchReadiness(ctx context.Context, r *corev1.Probe) {
	var successes int32
	period := seconds(r.PeriodSeconds, 10)
	for {
		if !u.poll(ctx, "Readiness", r, min(period, eager), func(ok bool, _ int32) bool {
			if successes++; !ok {
				successes = 0
			}
			return successes >= cmp.Or(r.SuccessThreshold, 1)
		}) {
			return
		}
		u.setReady(true)
		again := *r
		again.InitialDelaySeconds = r.PeriodSeconds
		if !u.poll(ctx, "Readiness", &again, period, func(_ bool, failures int32) bool {
			return failures >= cmp.Or(r.FailureThreshold, 3)
		}) {
			return
		}
		u.setReady(false)
		successes = 0
	}
}

func (u *unit) setReady(ready bool) {
	u.pod.mu.Lock()
	u.ready = ready
	u.pod.mu.Unlock()
	u.pod.report()
}

// poll asks until enough says so, given the answer and the number of failures in a row. It reports false if ctx ends.
func (u *unit) poll(ctx context.Context, kind string, p *corev1.Probe, period time.Duration,
	enough func(ok bool, failures int32) bool) bool {
	timer := time.NewTimer(time.Duration(p.InitialDelaySeconds) * time.Second)
	defer timer.Stop()
	var warned time.Time
	for failures := int32(0); ; {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
		}
		err := u.ask(ctx, p)
		if ctx.Err() != nil {
			return false
		}
		if failures++; err == nil {
			failures = 0
		} else if time.Since(warned) >= seconds(p.PeriodSeconds, 10) { // however eagerly it asks
			u.warn("Unhealthy", "%s probe failed: %v", kind, err)
			warned = time.Now()
		}
		if enough(err == nil, failures) {
			return true
		}
		timer.Reset(period)
	}
}

func seconds(n int32, otherwise int) time.Duration {
	return time.Duration(cmp.Or(int(n), otherwise)) * time.Second
}

// ask asks once.
func (u *unit) ask(ctx context.Context, p *corev1.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, seconds(p.TimeoutSeconds, 1))
	defer cancel()
	switch {
	case p.HTTPGet != nil:
		return u.get(ctx, p.HTTPGet)
	case p.TCPSocket != nil:
		conn, err := u.dial(ctx, p.TCPSocket.Host, p.TCPSocket.Port)
		if err == nil {
			conn.Close()
		}
		return err
	case p.Exec != nil:
		return u.check(ctx, p.Exec.Command)
	case p.GRPC != nil:
		return u.health(ctx, p.GRPC)
	}
	return nil
}

// address returns where a probe goes: the pod's address unless it names another.
func (u *unit) address(host string, port intstr.IntOrString) (netip.AddrPort, error) {
	addr := u.pod.Addrs[0]
	if host != "" {
		var err error
		if addr, err = netip.ParseAddr(host); err != nil {
			return netip.AddrPort{}, err
		}
	}
	number := port.IntValue()
	if port.Type == intstr.String && number == 0 {
		for _, p := range u.spec.Ports {
			if p.Name == port.StrVal {
				number = int(p.ContainerPort)
			}
		}
	}
	if number <= 0 || number > 65535 {
		return netip.AddrPort{}, fmt.Errorf("port %s is not one of the container", port.String())
	}
	return netip.AddrPortFrom(addr, uint16(number)), nil
}

// dial connects from the node, as a kubelet does.
func (u *unit) dial(ctx context.Context, host string, port intstr.IntOrString) (net.Conn, error) {
	to, err := u.address(host, port)
	if err != nil {
		return nil, err
	}
	return u.pod.Node.Dial(ctx, "tcp", netip.AddrPort{}, to)
}

// get succeeds with a status from 200 to 399.
func (u *unit) get(ctx context.Context, g *corev1.HTTPGetAction) error {
	to, err := u.address(g.Host, g.Port)
	if err != nil {
		return err
	}
	scheme := "http"
	if g.Scheme == corev1.URISchemeHTTPS {
		scheme = "https"
	}
	path := g.Path
	if len(path) == 0 || path[0] != '/' {
		path = "/" + path
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+to.String()+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "kube-probe/viplab")
	for _, h := range g.HTTPHeaders {
		request.Header.Set(h.Name, h.Value)
		if h.Name == "Host" {
			request.Host = h.Value
		}
	}
	transport := u.transport()
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode >= 400 {
		return fmt.Errorf("HTTP status %d", answer.StatusCode)
	}
	return nil
}

// transport connects from the node. It accepts any certificate.
func (u *unit) transport() *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return nil, err
			}
			return u.pod.Node.Dial(ctx, network, netip.AddrPort{}, to)
		},
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}
}

// serving is the answer SERVING of https://github.com/grpc/grpc/blob/master/doc/health-checking.md: field 1 is 1.
var serving = []byte{0x08, 0x01}

// health asks the gRPC health service of the container.
func (u *unit) health(ctx context.Context, g *corev1.GRPCAction) error {
	to, err := u.address("", intstr.FromInt32(g.Port))
	if err != nil {
		return err
	}
	var message []byte
	if service := ptr.Deref(g.Service, ""); service != "" {
		message = binary.AppendUvarint([]byte{0x0a}, uint64(len(service))) // field 1, a string
		message = append(message, service...)
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))) // not compressed
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://"+to.String()+"/grpc.health.v1.Health/Check", bytes.NewReader(append(frame, message...)))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("TE", "trailers")
	transport := u.transport()
	transport.DisableKeepAlives = false
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err != nil {
		return err
	}
	if status := cmp.Or(answer.Trailer.Get("Grpc-Status"), answer.Header.Get("Grpc-Status")); status != "0" {
		return fmt.Errorf("gRPC status %s", status)
	}
	if len(body) < 5 || !bytes.Equal(body[5:], serving) {
		return errors.New("the service is not serving")
	}
	return nil
}
