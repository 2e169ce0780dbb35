"""The execution-primitive lab: ways of organising computations, verified and measured."""
