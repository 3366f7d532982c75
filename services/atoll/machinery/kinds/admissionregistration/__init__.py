"""The group admissionregistration.k8s.io: webhooks and policies that validate or mutate requests.

What belongs here: checks of the objects. What does not belong here: admission, which calls webhooks and evaluates
policies, and CEL expressions, which are checked where they are compiled.
"""
