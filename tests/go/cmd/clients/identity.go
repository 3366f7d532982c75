package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"atoll.dev/tests/internal/checks"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func accessReview(ctx context.Context, c clients) error {
	ask := func(user string, groups ...string) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "secrets"},
		}}
		answer, err := c.typed.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return answer.Status.Allowed, nil
	}
	allowed, err := ask("anybody", "system:masters")
	if err != nil || !allowed {
		return fmt.Errorf("a master is allowed %v: %w", allowed, err)
	}
	allowed, err = ask("anybody", "system:authenticated")
	if err != nil || allowed {
		return fmt.Errorf("a stranger is allowed %v: %w", allowed, err)
	}
	return nil
}

func tokenRequest(ctx context.Context, c clients) error {
	accounts := c.typed.CoreV1().ServiceAccounts(namespace)
	made := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	if _, err := accounts.Create(ctx, made, metav1.CreateOptions{}); err != nil {
		return err
	}
	seconds := int64(600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := accounts.CreateToken(ctx, "robot", request, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: answer.Status.Token}}
	found, err := c.typed.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return checks.Expect("whose token", found.Status.User.Username, "system:serviceaccount:default:robot")
}

// leaderElection lets two candidates fight for one Lease: one leads, and when it steps down the other does.
func leaderElection(ctx context.Context, c clients) error {
	leads := make(chan string, 2)
	first, stopFirst := context.WithCancel(ctx)
	second, stopSecond := context.WithCancel(ctx)
	defer stopSecond()
	defer stopFirst()
	stop := map[string]context.CancelFunc{"one": stopFirst, "two": stopSecond}
	for name, own := range map[string]context.Context{"one": first, "two": second} {
		elector, err := candidate(c, name, leads)
		if err != nil {
			return err
		}
		go elector.Run(own)
	}
	leader, err := next(ctx, leads)
	if err != nil {
		return err
	}
	stop[leader]()
	successor, err := next(ctx, leads)
	if err != nil {
		return err
	}
	if leader == successor {
		return errors.New("the same candidate was elected twice")
	}
	lease, err := c.typed.CoordinationV1().Leases(namespace).Get(ctx, "helm", metav1.GetOptions{})
	if err != nil {
		return err
	}
	return checks.Expect("holder", *lease.Spec.HolderIdentity, successor)
}

func candidate(c clients, name string, leads chan<- string) (*leaderelection.LeaderElector, error) {
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, namespace, "helm",
		c.typed.CoreV1(), c.typed.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: name})
	if err != nil {
		return nil, err
	}
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, ReleaseOnCancel: true,
		LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { leads <- name },
			OnStoppedLeading: func() {},
		},
	})
}

func next(ctx context.Context, names <-chan string) (string, error) {
	select {
	case name := <-names:
		return name, nil
	case <-ctx.Done():
		return "", errors.New("nobody leads")
	}
}
